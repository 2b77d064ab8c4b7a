"""Compute and emit a flow's checkpoints in one bounded run over its groups.

It fetches commits, then maps around them, then logs, so a map is never older than the commits that
it translates. A group that cannot be read is reported and does not affect the others. The source's
groups are listed once in ``refresh.groups.interval.seconds``, and stored with the flow's state.
"""

from __future__ import annotations

import logging
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache, partial
from typing import Final, TypeVar

from srm.config.model import FlowConfig
from srm.domain.flow_state.replication_records import COMMANDS, STATE_PARTITIONS
from srm.domain.groups.checkpoints import CheckpointOutcome, FactsOf, Selection, checkpoint_outcomes
from srm.domain.groups.mm2_records import Checkpoint, TopicIds
from srm.domain.groups.proof import FlowProof
from srm.domain.groups.translation import Direction, PartitionFacts
from srm.domain.metrics import checkpoint_metrics, encode_checkpoints
from srm.domain.names import internal_topics
from srm.domain.names.policy import NameFilter
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.text.amount import Reason
from srm.domain.text.documents import Document, decode_or_none
from srm.engine.cluster_ports import ByGroup, Cluster, GroupKind, Stamped, Topics
from srm.engine.control.control_topics import STAMPED, ensure_compacted
from srm.engine.flows.supervision import paused_text
from srm.engine.flows.target_topics import write_metrics
from srm.engine.groups.ledger import forget_entries
from srm.engine.groups.proving import ProofShare, Survey, keep_proof, prove_emission, read_proof
from srm.engine.groups.translate import WantedMaps, logs_of, partition_facts, starts_of
from srm.engine.ports import FlowContext
from srm.errors import IntegrityError, UnavailableError, UsageError

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")

GROUPS_KEY: Final = b"groups"
WITHOUT_OFFSETS: Final[frozenset[GroupKind]] = frozenset({"other"})
"""Kinds of groups without offsets that srm can translate."""

_MS: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class GroupListing(Document):
    """Groups that the patterns of a flow selected at ``time_ms`` (epoch, by srm's clock)."""

    KIND = "stored listing of groups"
    time_ms: int
    patterns: tuple[str, ...]
    groups: tuple[str, ...]


def selected_groups(context: FlowContext, *, remember: bool = False) -> tuple[str, ...]:
    """Return the source's groups that present lists select, in order; ``remember`` stores them."""
    config, now_ms = context.config, context.now_ms()
    interval = config.refresh_groups_interval
    patterns = (*config.groups, "", *config.groups_exclude)
    topic = internal_topics.replication(config.flow.source)
    table = context.target.compacted_topic(topic, COMMANDS)
    known = decode_or_none(table.read().get(GROUPS_KEY) if interval else None, GroupListing.decode)
    if known is not None and known.patterns != patterns:
        known = None
    if known and interval and 0 <= now_ms - known.time_ms < interval / _MS:
        return known.groups
    # A broker does not list groups that srm may not see, so groups selected by name are added.
    chosen = config.group_names
    try:
        found = {*groups_with_offsets(context.source), *chosen.names}
    except UnavailableError:
        if known is None:
            raise
        return known.groups
    groups = tuple(sorted(filter(chosen.matches, found)))
    if remember and interval is not None:
        own = config.internal_replication_factor
        ensure_compacted(context.target, topic, STATE_PARTITIONS, own)
        try:
            table.write({GROUPS_KEY: GroupListing(now_ms, patterns, groups).value()})
        except UsageError as error:  # their names need more than a megabyte
            _logger.warning("%s: groups are listed each time: %s", config.flow, error)
        else:
            _logger.info("%s: listed %d groups, valid for %s", config.flow, len(groups), interval)
    return groups


def groups_with_offsets(cluster: Cluster) -> tuple[str, ...]:
    found = cluster.groups().values()
    return tuple(sorted(group.name for group in found if group.kind not in WITHOUT_OFFSETS))


Commits = Mapping[TopicPartition, int]
Groups = Collection[str] | Mapping[str, Collection[TopicPartition]]
"""Groups by name, or some partitions of each."""
Look = Callable[[], Survey]


@dataclass(frozen=True)
class CheckpointSummary:
    """Result of one emission; ``written`` and ``unchanged`` checkpoints, outcomes by state.

    ``skipped`` is why the run did nothing, else empty; ``proof`` is of a sample of the groups.
    """

    flow: Flow
    time_ms: int
    groups: int = 0
    written: int = 0
    unchanged: int = 0
    states: Mapping[str, int] = field(default_factory=dict)
    outcomes: tuple[CheckpointOutcome, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)
    skipped: str = ""
    dry_run: bool = False
    proof: FlowProof | None = None


def selection_of(config: FlowConfig) -> Selection:
    return Selection(
        config.names,
        config.group_names,
        NameFilter(config.reverse_checkpointed_topics),
        config.reverse_checkpointing_enabled,
    )


def emit(
    context: FlowContext,
    groups: Groups | None = None,
    *,
    dry_run: bool = False,
    share: ProofShare | None = None,
    look: Look | None = None,
) -> CheckpointSummary:
    """Write changed checkpoints to ``<SOURCE>.checkpoints.internal`` on the target.

    Before that, records at commits and translations are compared, within the flow's budget; wrong
    checkpoints are not written. The proof is stored, unless only ``groups`` are emitted. ``share``:
    the places to prove. ``look``: returns translations that the caller shares with other steps.
    """
    config, now_ms = context.config, context.now_ms()
    if not (config.emit_checkpoints_enabled or dry_run):
        skipped = f"{config.flow}.emit.checkpoints.enabled is false"
        return CheckpointSummary(config.flow, now_ms, skipped=skipped)
    if paused := paused_text(context):
        return CheckpointSummary(config.flow, now_ms, skipped=paused)
    found = look() if look else survey(context, groups, remember=not dry_run)
    share = share or proof_share(context)
    proof, withheld = prove_emission(context, found, share, partial(survey, context), now_ms)
    for wrong in proof.disproved:
        _logger.error("%s: group %s: %s", config.flow, wrong.group, wrong.evidence)
    topic = config.checkpoints_topic
    table = context.target.compacted_topic(topic)
    rows = table.read_stamped()
    existing = {key: row.value for key, row in rows.items()}
    checkpoints = [
        checkpoint
        for outcome in found.outcomes
        if (checkpoint := outcome.checkpoint) is not None
        and (outcome.group, outcome.upstream) not in withheld
    ]
    records = {checkpoint.key(): checkpoint.value() for checkpoint in checkpoints}
    changed = {key: value for key, value in records.items() if existing.get(key) != value}
    if changed and not dry_run:
        if not existing:
            factor = config.checkpoints_replication_factor
            ensure_compacted(context.target, topic, 1, factor, STAMPED)
        table.write(changed)
        _write_latency(context, found, changed.keys(), now_ms)
    if groups is None and not dry_run:
        still = forget_commits(context, found.outcomes, found.errors, rows)
        keep_proof(context, replace(proof, unread=(*proof.unread, *still)))
    level = logging.INFO if groups is None else logging.DEBUG
    _logger.log(level, "%s: wrote %d of %d checkpoints", config.flow, len(changed), len(records))
    return CheckpointSummary(
        flow=config.flow,
        time_ms=now_ms,
        groups=len(found.groups),
        written=len(changed),
        unchanged=len(records) - len(changed),
        states=dict(sorted(Counter(outcome.state for outcome in found.outcomes).items())),
        outcomes=found.outcomes,
        errors=texts(found.errors),
        dry_run=dry_run,
        proof=proof,
    )


def _write_latency(
    context: FlowContext, found: Survey, written: Collection[bytes], began_ms: int
) -> None:
    """Write the latency of the checkpoints just acknowledged, all at the end of one call."""
    now_ms = context.now_ms()
    taken = [
        (one.upstream.topic, checkpoint.topic_partition.topic, now_ms - found.queried_ms[one.group])
        for one in found.outcomes
        if (checkpoint := one.checkpoint) is not None and checkpoint.key() in written
    ]
    metrics = checkpoint_metrics(context.config.flow, began_ms, now_ms, taken)
    write_metrics(context, "checkpoints", encode_checkpoints(metrics))


def forget_commits(
    context: FlowContext,
    outcomes: Iterable[CheckpointOutcome],
    errors: Collection[str],
    rows: Mapping[bytes, Stamped],
) -> tuple[str, ...]:
    """Mark, then forget, checkpoints of commits that the source no longer has.

    Returns the groups whose checkpoints nothing was read about. A commit counts as gone if the
    source answers for its group and has the commit's topic. ``outcomes`` are of all surveyed
    groups, ``rows`` the checkpoints before they were written.
    """
    config, now_ms, selection = context.config, context.now_ms(), selection_of(context.config)
    commits, emitted = defaultdict[str, list[TopicPartition]](list), set[bytes]()
    for outcome in outcomes:
        commits[outcome.group].append(outcome.upstream)
        if outcome.checkpoint is not None:
            emitted.add(outcome.checkpoint.key())
    left = [one for one in _decode_rows(rows) if one.key() not in emitted and not one.is_forgotten]
    others = {one.group for one in left} - commits.keys() - {*errors}
    wanted = sorted(filter(selection.groups.matches, others))
    answered, _ = context.source.commits_of(wanted) if wanted else ({}, {})
    covered = {name: selection.covers(places) for name, places in (commits | answered).items()}
    gone = [
        one
        for one in left
        if one.group in covered and one.topic_partition not in covered[one.group]
    ]
    topics, changed = context.source.topics() if gone else {}, dict[bytes, bytes | None]()
    for one in gone:
        known = topics.get(selection.upstream_topic(one.topic_partition.topic))
        ids = one.topic_ids
        if known is None or (ids is not None and ids.source not in {"", known.topic_id}):
            continue  # what is true of a deleted or hidden topic does not follow from commits
        next_one = one.without_commit(now_ms, config.forget_groups_after // _MS)
        if next_one != one:
            changed[one.key()] = next_one.value()
    if changed:
        context.target.compacted_topic(config.checkpoints_topic).write(changed)
        _logger.info("%s: commits of %d checkpoints are gone", config.flow, len(changed))
    return tuple(sorted(others - covered.keys()))


def proof_share(context: FlowContext) -> ProofShare:
    budget = context.config.proof_budget
    last = read_proof(context.target, context.config.flow) if budget else None
    return ProofShare.after(budget, last)


def unselected_reason(flow: Flow, group: str) -> Reason:
    why = f"srm why {shlex.quote(group)} --flow '{flow}' --kind group"
    return Reason(f"group not selected: {why}", why)


def survey(context: FlowContext, groups: Groups | None = None, *, remember: bool = False) -> Survey:
    """Translate the commits of all selected (or given) groups; ``remember`` keeps their listing."""
    selection = selection_of(context.config)
    listed = selected_groups(context, remember=remember) if groups is None else groups
    wanted = sorted(name for name in listed if selection.groups.matches(name))
    # Read first: offsets that are read later belong to topics with these ids, or to newer ones.
    on_source = context.source.topics() if wanted else {}
    on_target = context.target.topics() if wanted else {}

    queried_ms = dict.fromkeys(wanted, context.now_ms())
    commits, errors = per_group(context.source.commits_of(wanted))
    if groups is not None:
        unselected, flow = sorted(set(groups) - set(wanted)), context.config.flow
        errors.update({group: unselected_reason(flow, group) for group in unselected})
    if isinstance(groups, Mapping):
        commits = {
            group: {place: offset for place, offset in offsets.items() if place in groups[group]}
            for group, offsets in commits.items()
        }
    chosen = {name: some for name, some in commits.items() if selection.selects_group(name, some)}
    facts_of = _facts(context, selection, chosen.values())

    def ids_of(upstream: TopicPartition, downstream: TopicPartition) -> TopicIds:
        source, target = on_source.get(upstream.topic), on_target.get(downstream.topic)
        return TopicIds(source.topic_id if source else "", target.topic_id if target else "")

    # Commits of some partitions come from a log that share groups do not write to.
    share = context.source.share_groups() if chosen and not isinstance(groups, Mapping) else ()
    outcomes = tuple(
        replace(outcome, is_share=group in share)
        for group, offsets in sorted(chosen.items())
        for outcome in checkpoint_outcomes(group, offsets, selection, facts_of, ids_of)
    )
    return Survey(outcomes, errors, facts_of, queried_ms, on_source, on_target)


def per_group(answers: ByGroup[_T]) -> tuple[dict[str, _T], dict[str, Reason]]:
    results, errors = answers
    return results, {group: Reason.of(error) for group, error in errors.items()}


def texts(reasons: Mapping[str, Reason]) -> dict[str, str]:
    return {name: reason.text for name, reason in reasons.items()}


def read_checkpoints(
    target: Cluster, topic: str, topics: Topics, group: str | None = None, *, gone: bool = False
) -> list[Checkpoint]:
    """Return the checkpoints of a flow, for the ``topics`` of the target, read before.

    Those of commits that the source no longer has, and forgotten ones, are only in with ``gone``.

    A checkpoint of a former topic with this name counts as offset 0. So does one of MM2, without a
    topic id, after the end of the log. Those of missing partitions, and damaged ones, are skipped.
    """
    found = [
        one
        for one in _decode_rows(target.compacted_topic(topic).read_stamped(), group)
        if (gone or not one.gone_since_ms)
        and (known := topics.get(one.topic_partition.topic)) is not None
        and one.topic_partition.partition < known.partitions
    ]
    of_mm2 = {
        one.topic_partition for one in found if one.downstream_offset and one.topic_ids is None
    }
    served = [place for place in of_mm2 if place.partition not in topics[place.topic].leaderless]
    ends = target.high_watermarks(served) if served else {}

    def is_former(one: Checkpoint) -> bool:
        place, ids = one.topic_partition, one.topic_ids
        if ids is None:
            return one.downstream_offset > ends.get(place, one.downstream_offset)
        return ids.target != topics[place.topic].topic_id

    return [one.at_the_start() if is_former(one) else one for one in found]


def _decode_rows(rows: Mapping[bytes, Stamped], group: str | None = None) -> Iterator[Checkpoint]:
    for key, row in rows.items():
        try:
            if group is None or Checkpoint.group_of(key) == group:
                yield Checkpoint.decode(key, row.value, row.timestamp_ms)
        except IntegrityError as error:
            _logger.error("%s; skipped", error)  # noqa: TRY400 -- one line


def forget_topics(cluster: Cluster, topic: str, gone: Collection[str], now_ms: int) -> None:
    """Reset checkpoints in topics with these ids, for MM2's readers; forget ledger entries."""
    places = cluster.compacted_topic(topic)
    reset = {
        checkpoint.key(): checkpoint.at_the_start().value()
        for checkpoint in _decode_rows(places.read_stamped())
        if (ids := checkpoint.topic_ids) is not None and ids.target in gone
    }
    if reset:
        places.write(reset)
    forget_entries(cluster, gone, now_ms)


def _facts(context: FlowContext, selection: Selection, commits: Iterable[Commits]) -> FactsOf:
    offsets: dict[TopicPartition, set[int]] = defaultdict(set)
    for committed in commits:
        for partition, offset in committed.items():
            offsets[partition].add(offset)
    chosen = {p: found for p in offsets if (found := selection.direction(p.topic)) is not None}
    counterparts = {p: selection.downstream(p, direction) for p, direction in chosen.items()}
    starts = starts_of(context.source, chosen)
    target_starts = starts_of(context.target, set(counterparts.values()))
    wanted = WantedMaps()
    for p, direction in chosen.items():
        sides = (p, starts), (counterparts[p], target_starts)
        is_shared = selection.names.is_shared(p.topic)
        wanted.add(direction, *sides, offsets[p], is_shared=is_shared)
    maps = wanted.load(context)
    upstream = logs_of(context.source, chosen, starts)
    downstream = logs_of(context.target, set(counterparts.values()), target_starts)

    @cache
    def facts_of(partition: TopicPartition, direction: Direction) -> PartitionFacts:
        place, target = counterparts[partition], selection.names.flow.target
        sides = (partition, upstream), (place, downstream), target
        is_shared = selection.names.is_shared(partition.topic)
        return partition_facts(maps, direction, *sides, is_shared=is_shared)

    return facts_of
