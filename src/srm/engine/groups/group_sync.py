"""Write translated offsets of idle groups on a flow's target.

Steps per group: decide by its current commits, write the ledger, read the commits again, on the
target and then on the source, write the offsets, read them back, settle the ledger. The broker
refuses the write while the group has members. A group that became active in between, or that the
source no longer has, is skipped and reported. One that the write created is deleted: it was absent,
commits are gone that it had before, or its log shows a deletion right before the write.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from srm.config.model import FlowConfig
from srm.domain.groups.checkpoints import CheckpointOutcome
from srm.domain.groups.group_sync import (
    IDLE,
    GroupLedger,
    LedgerEntry,
    SyncAction,
    SyncDecision,
    decide,
)
from srm.domain.groups.mm2_records import commits_after_deletion
from srm.domain.moves.routing import (
    Route,
    decode_route,
    group_subject,
    is_subject,
)
from srm.domain.moves.whereabouts import Whereabouts
from srm.domain.names import internal_topics
from srm.domain.names.internal_topics import CONSUMER_OFFSETS, partition_of
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.text.amount import Reason
from srm.domain.text.documents import decode_or_none
from srm.engine.cluster_ports import Cluster, GroupDescription, Row, tolerate
from srm.engine.control.control_topics import STAMPED, ensure_compacted
from srm.engine.flows.supervision import paused_text
from srm.engine.groups.checkpoints import Commits, Groups, Look, per_group, survey, texts
from srm.engine.groups.ledger import read_ledger
from srm.engine.groups.proving import Survey, read_proof
from srm.engine.ports import FlowContext
from srm.errors import GroupActiveError, SrmError

logger = logging.getLogger(__name__)

_GROUPS_AT_ONCE = 200  # groups per ledger write, and the most that a crash can leave unsettled
_MOST_RECORDS = 10_000  # of one log that are searched for a deletion
_EXPIRY_MS = 7 * 86_400_000  # brokers' default: offsets of a group without members last so long
_AT_A_TIME = 8  # parallel commits, each a short request to a coordinator


@dataclass(frozen=True)
class GroupSyncSummary:
    """Result of one run; ``applied`` counts offsets read back, ``skipped``: why it did nothing."""

    flow: Flow
    time_ms: int
    actions: Mapping[str, int] = field(default_factory=dict)
    applied: int = 0
    decisions: tuple[SyncDecision, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)
    skipped: str = ""
    dry_run: bool = False


def sync(
    context: FlowContext,
    groups: Groups | None = None,
    *,
    dry_run: bool = False,
    look: Look | None = None,
) -> GroupSyncSummary:
    """Set idle groups on the target to their source offsets; ``look`` as for checkpoints."""
    flow, now_ms = context.config.flow, context.now_ms()
    if not (context.config.sync_group_offsets_enabled or dry_run):
        return GroupSyncSummary(flow, now_ms, skipped=f"{flow}.sync.group.offsets.enabled is false")
    if paused := paused_text(context):
        return GroupSyncSummary(flow, now_ms, skipped=paused)
    found = look() if look else survey(context, groups, remember=not dry_run)
    ledger = read_ledger(context.target, found.on_target)
    decisions, errors = decisions_of(context, found, ledger)
    if not dry_run:
        share = {outcome.group for outcome in found.outcomes if outcome.is_share}
        run = _Run(context, ledger, f"sync {flow} {now_ms}", share, found)
        decisions = run.carry_out(decisions)
    return GroupSyncSummary(
        flow=flow,
        time_ms=now_ms,
        actions=dict(sorted(Counter(decision.action for decision in decisions).items())),
        applied=sum(decision.applied for decision in decisions),
        decisions=decisions,
        errors=texts(errors),
        dry_run=dry_run,
    )


def decisions_of(
    context: FlowContext, found: Survey, ledger: GroupLedger
) -> tuple[tuple[SyncDecision, ...], dict[str, Reason]]:
    """Return the decisions for the groups of a survey, and reasons for undecided groups.

    Partitions in which the last emission of checkpoints found a wrong translation are omitted.
    """
    config, target = context.config, context.target
    proof = read_proof(target, config.flow)
    disproved = proof.wrong_partitions if proof is not None else frozenset[str]()
    see = "see srm status"
    wrong = {
        outcome.group: Reason(
            f"not written for {outcome.upstream}: a translation in it was disproved; {see}", see
        )
        for outcome in found.outcomes
        if str(outcome.upstream) in disproved
    }
    # Read after the commits, so it holds every write of the opposite flow that they show.
    source_ledger = read_ledger(context.source, found.on_source)
    by_group = defaultdict[str, list[CheckpointOutcome]](list)
    for outcome in found.outcomes:
        if outcome.downstream is not None and str(outcome.upstream) not in disproved:
            by_group[outcome.group].append(outcome)
    states = target.groups(sorted(by_group)) if by_group else {}
    idle = [name for name in sorted(by_group) if _state(states, name).state in IDLE]
    committed, errors = per_group(target.commits_of(idle))
    decisions = []
    readable = [name for name in sorted(by_group) if name not in errors]
    for name, outcome in ((group, o) for group in readable for o in by_group[group]):
        state, partition = _state(states, name), outcome.downstream or outcome.upstream
        if state.state not in IDLE:
            decisions.append(SyncDecision(name, partition, "group-active", reason=_members(state)))
            continue
        current = committed[name].get(partition)
        entry = ledger.entry(name, partition)
        own = source_ledger.entry(name, outcome.upstream)
        is_copy = outcome.direction == "forward" and config.joins(outcome.upstream.topic)
        joined = config.joined if is_copy else frozenset[str]()
        decisions.append(decide(outcome, current, entry, config.flow, own, joined))
    ahead = {decision.partition for decision in decisions if decision.action == "consumer-ahead"}
    ends = target.log_ends(ahead) if ahead else {}
    decisions = [_within(decision, ends) for decision in decisions]
    decisions = _without_deleted(context, decisions, ledger)
    hidden = {name: Reason(one.reason, one.action) for name, one in states.items() if one.reason}
    return tuple(decisions), {**wrong, **found.errors, **hidden, **errors}


def _within(decision: SyncDecision, ends: Mapping[TopicPartition, int]) -> SyncDecision:
    """Replace a commit after the end of a log that was truncated."""
    place, current = decision.partition, decision.current
    end = ends.get(place)
    if current is None or end is None or current <= end:
        return decision
    return replace(decision, action="write", reason=f"the log of {place} was truncated to {end}")


def _without_deleted(
    context: FlowContext, decisions: list[SyncDecision], ledger: GroupLedger
) -> list[SyncDecision]:
    """Leave out offsets written before that were deleted on the target, where routes lead.

    Offsets that may have expired there are written again.
    """
    since_ms = context.now_ms() - _EXPIRY_MS
    written = {
        (one.group, one.partition)
        for one in decisions
        if one.action == "write" and one.current is None
        if (entry := ledger.entry(one.group, one.partition)) and entry.settled
        if entry.intended == one.offset and entry.time_ms > since_ms
    }
    if not written:
        return decisions
    where = Whereabouts([*map(_routes, (context.target, context.source))])
    flow = context.config.flow
    why = f"it was deleted on {flow.target}, where its route leads"
    return [
        replace(one, action="deleted-there", reason=why)
        if (one.group, one.partition) in written
        and where.cluster_of(group_subject(one.group), flow.source) == flow.target
        else one
        for one in decisions
    ]


def _routes(cluster: Cluster) -> dict[str, Route]:
    rows = cluster.compacted_topic(internal_topics.ROUTING).read()
    found = {
        key.decode(): decode_or_none(value, partial(decode_route, key))
        for key, value in rows.items()
        if is_subject(key)
    }
    return {subject: route for subject, route in found.items() if route is not None}


def apply_exact(
    context: FlowContext,
    wanted: Mapping[str, Mapping[TopicPartition, int]],
    *,
    seen: Mapping[str, Mapping[TopicPartition, int | None]] | None = None,
    operation: str = "",
    share: Collection[str] = (),
) -> tuple[SyncDecision, ...]:
    """Set groups on the target to exactly these offsets, with the ledger; used by moves.

    Commits ``seen`` at the decision (without it: any) are replaced, higher or lower. A group with
    members or changed offsets is skipped with ``group-active``. All groups are in one call, as it
    reads the ledger of the whole cluster. ``operation``: id of the move; ``share``: share groups.
    """
    names, topics = sorted(wanted), context.target.topics()
    states = context.target.groups(names)
    current, errors = per_group(context.target.commits_of(names))
    before = current if seen is None else seen
    ledger = read_ledger(context.target, topics)
    decisions = []
    places = ((group, *place) for group in names for place in sorted(wanted[group].items()))
    for name, partition, offset in places:
        group, entry = _state(states, name), ledger.entry(name, partition)
        now, then = current.get(name, {}).get(partition), before.get(name, {}).get(partition)
        # An offset below an older intention would later look like an operator's rewind. Above it a
        # consumer's stays its own: a sync would lower ours to the group's place on the source.
        known = entry is None or entry.intended == offset
        is_theirs = entry is not None and entry.intended < offset and not entry.owns(offset)
        action: SyncAction = "unchanged" if now == offset and (known or is_theirs) else "write"
        reason = ""
        if group.state not in IDLE:
            action, reason = "group-active", _members(group)
        elif name in errors:
            action, reason = "not-written", errors[name].text
        elif now not in {then, offset}:
            action, reason = "group-active", f"its offset changed from {then} to {now}"
        decisions.append(SyncDecision(name, partition, action, now, offset, reason))
    operation = operation or f"apply {context.config.flow} {context.now_ms()}"
    return _Run(context, ledger, operation, share).carry_out(decisions)


def _members(group: GroupDescription) -> str:
    if group.state == "unknown":
        why = f" ({group.reason})" if group.reason else ""
        return f"its state is unknown{why}, so it may have members"
    return f"members: {', '.join(group.members) or 'unnamed'}"


def _state(states: Mapping[str, GroupDescription], group: str) -> GroupDescription:
    return states.get(group, GroupDescription(group, "unknown"))


@dataclass(frozen=True)
class _Run:
    """Writes of one run, with the ledger as read before and the operation that it notes.

    ``found``: what a sync translates; a move writes whatever its source has since.
    """

    context: FlowContext
    ledger: GroupLedger
    operation: str
    share: Collection[str]
    found: Survey | None = None

    def carry_out(self, decisions: Sequence[SyncDecision]) -> tuple[SyncDecision, ...]:
        """Carry out decisions, a bounded number of groups at a time; return them with results."""
        writes = [decision for decision in decisions if decision.action == "write"]
        results = {(d.group, d.partition): d for d in decisions}
        if writes:
            factor = self.context.config.internal_replication_factor
            ensure_compacted(self.context.target, internal_topics.LEDGER, 1, factor, STAMPED)
        for some in _chunks(writes):
            for done in self._write(some):
                results[done.group, done.partition] = done
        self._settle_earlier(results.values())
        return tuple(results.values())

    def _write(self, groups: Sequence[list[SyncDecision]]) -> list[SyncDecision]:
        table = self.context.target.compacted_topic(internal_topics.LEDGER)
        entries = {(d.group, d.partition): self._entry(d) for some in groups for d in some}
        table.write({entry.key(): entry.value() for entry in entries.values()})
        settled: dict[bytes, bytes | None] = {}
        unwritten: list[LedgerEntry] = []
        done: list[SyncDecision] = []
        for result in self._write_groups(groups):
            entry = entries[result.group, result.partition]
            if result.applied:
                settled[entry.key()] = entry.as_settled().value()
            elif result.action != "failed":
                unwritten.append(entry)
            done.append(result)
        now = table.read() if unwritten else {}
        for entry in unwritten:
            # Such an intention would look like our own write. Newer entries of other runs stay.
            if now.get(entry.key()) == entry.value():
                before = self.ledger.entry(entry.group, entry.topic_partition)
                settled[entry.key()] = None if before is None else before.value()
        table.write(settled)
        return done

    def _entry(self, decision: SyncDecision) -> LedgerEntry:
        before, current = self.ledger.entry(decision.group, decision.partition), decision.current
        ours = before if before and current is not None and before.owns(current) else None
        since = ours.before_syncs if ours else current or 0
        return LedgerEntry(
            group=decision.group,
            topic_partition=decision.partition,
            topic_id=self.ledger.topic_id(decision.partition.topic),
            previous=current,
            intended=_offset(decision),
            origin=self.context.config.flow.source,
            operation=self.operation,
            previous_own=ours is not None,
            progress=_progress(before, decision, self.context.config),
            before_syncs=since if self.operation.startswith("sync ") else decision.offset,
        )

    def _write_groups(self, groups: Sequence[list[SyncDecision]]) -> Iterator[SyncDecision]:
        """Write the offsets of groups that have not changed since the decision."""
        by_name = {decisions[0].group: decisions for decisions in groups}
        ends = self._log_ends(by_name)  # a deletion before them is in the commits read next
        before, unread = self._read(self.context.target, by_name)
        unread = {**unread, **self._left_source(by_name)}
        waiting: dict[str, list[SyncDecision]] = {}
        for name, decisions in by_name.items():
            if name in unread:
                yield from _each(decisions, "not-written", unread[name])
            elif any(before[name].get(d.partition) not in {d.current, d.offset} for d in decisions):
                # A consumer commits for this group right now, so the next run decides again.
                yield from _each(decisions, "group-active", "its offsets have just changed")
            else:
                waiting[name] = decisions
        with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="srm-groups") as pool:
            refused = dict(zip(waiting, pool.map(self._commit, waiting.values()), strict=True))
        active = {name for name, error in refused.items() if isinstance(error, GroupActiveError)}
        now, unread = self._read(self.context.target, waiting.keys() - active)
        created = {
            name: waiting[name]
            for name in now
            if not before[name] or before[name].keys() - now[name].keys()
        }
        others = {name: waiting[name] for name in now.keys() - created} if ends else {}
        left = self._left_source(others, carried=False)
        again = self._deleted_there({name: others[name] for name in left}, ends)
        left = self._left_source(created) | {name: left[name] for name in again}
        for name, why in left.items():
            if now[name].keys() == {decision.partition for decision in waiting[name]}:
                remove = partial(self.context.target.delete_groups, [name])
                tolerate(remove, f"group {name}, of which {why}, remains here", SrmError)
                yield from _each(waiting.pop(name), "not-written", why)
        for name, decisions in waiting.items():
            failure = "" if refused[name] is None else str(refused[name])
            if name in active:
                yield from _each(decisions, "group-active", failure)
            elif name in unread:
                yield from _each(decisions, "failed", failure or unread[name])
            else:
                yield from (_read_back(decision, now[name], failure) for decision in decisions)

    def _read(
        self, cluster: Cluster, groups: Collection[str]
    ) -> tuple[Mapping[str, Commits], Mapping[str, str]]:
        try:
            found, errors = cluster.commits_of(sorted(groups))
        except SrmError as error:
            return {}, dict.fromkeys(groups, str(error))
        return found, {group: str(error) for group, error in errors.items()}

    def _logs(self, groups: Collection[str]) -> Mapping[str, TopicPartition]:
        """Return where the target keeps the commits of groups, nothing if srm may not see it."""
        log = self.found.on_target.get(CONSUMER_OFFSETS) if self.found else None
        if log is None:
            return {}
        return {
            g: TopicPartition(CONSUMER_OFFSETS, partition_of(g, log.partitions)) for g in groups
        }

    def _log_ends(self, groups: Collection[str]) -> Mapping[TopicPartition, int]:
        read = partial(self.context.target.high_watermarks, {*self._logs(groups).values()})
        return tolerate(read, f"ends of {CONSUMER_OFFSETS}", SrmError) or {}

    def _deleted_there(
        self, groups: Mapping[str, list[SyncDecision]], since: Mapping[TopicPartition, int]
    ) -> set[str]:
        """Return the written groups whose commits follow a deletion in the target's logs."""
        commits = set[tuple[str, TopicPartition, int]]()
        for log in {*self._logs(groups).values()} & since.keys():
            read = partial(self._records, log, since[log])
            why = f"deletions of groups on {self.context.target.alias} are not visible"
            commits |= commits_after_deletion(tolerate(read, why, SrmError) or ())
        ours = ((one, _offset(one)) for decisions in groups.values() for one in decisions)
        return {one.group for one, at in ours if (one.group, one.partition, at) in commits}

    def _records(self, log: TopicPartition, start: int) -> list[Row]:
        target = self.context.target
        end = min(target.log_ends([log]).get(log, 0), start + _MOST_RECORDS)
        rows = target.compacted_topic(*log).at(range(start, end))
        return [rows[at] for at in sorted(rows)]

    def _left_source(
        self, groups: Mapping[str, list[SyncDecision]], *, carried: bool = True
    ) -> dict[str, str]:
        """Return why the source no longer supports writes of a sync, by group.

        Progress since the translation does not matter, unless srm itself has carried it there.
        """
        if self.found is None or not groups:
            return {}
        translated = {(one.group, one.downstream): one for one in self.found.outcomes}
        flow, source = self.context.config.flow, self.context.source
        now, left = self._read(source, groups)
        left, moved = {**left}, list[tuple[CheckpointOutcome, int]]()
        for name, decisions in groups.items():
            for one in (translated[name, decision.partition] for decision in decisions):
                at = now.get(name, {}).get(one.upstream)
                if name not in left and (at is None or at < one.upstream_offset):
                    what = "deleted" if at is None else f"set back to {at}"
                    left[name] = f"its commit for {one.upstream} was {what} on {flow.source}"
                elif at is not None and at > one.upstream_offset:
                    moved.append((one, at))
        ledger = read_ledger(source, self.found.on_source) if moved and carried else None
        for one, at in moved:
            own = ledger and ledger.entry(one.group, one.upstream)
            if own and own.origin == flow.target and own.owns(at):
                left[one.group] = f"srm has just carried {at} over to {one.upstream}"
        return left

    def _commit(self, decisions: Sequence[SyncDecision]) -> SrmError | None:
        group, target = decisions[0].group, self.context.target
        write = target.set_share_starts if group in self.share else target.commit_idle
        try:
            write(group, {d.partition: _offset(d) for d in decisions})
        except SrmError as error:
            if not isinstance(error, GroupActiveError):
                logger.warning("group %s on %s: %s", group, target.alias, error)
            return error
        return None

    def _settle_earlier(self, decisions: Iterable[SyncDecision]) -> None:
        """Settle entries of an interrupted run whose offset is in place; note sources' progress."""
        settled: dict[bytes, bytes | None] = {}
        for decision in decisions:
            if decision.action != "unchanged":
                continue
            entry = self.ledger.entry(decision.group, decision.partition)
            if entry is None or entry.intended != decision.current:
                continue
            is_own = decision.progress is None
            progress = entry.progress if is_own else _progress(entry, decision, self.context.config)
            if not entry.settled or progress != entry.progress:
                settled[entry.key()] = replace(entry.as_settled(), progress=progress).value()
        if settled:
            self.context.target.compacted_topic(internal_topics.LEDGER).write(settled)


def _chunks(writes: Sequence[SyncDecision]) -> Iterator[list[list[SyncDecision]]]:
    by_group = defaultdict[str, list[SyncDecision]](list)
    for decision in writes:
        by_group[decision.group].append(decision)
    groups = list(by_group.values())
    for start in range(0, len(groups), _GROUPS_AT_ONCE):
        yield groups[start : start + _GROUPS_AT_ONCE]


def _progress(
    before: LedgerEntry | None, decision: SyncDecision, config: FlowConfig
) -> Mapping[str, int]:
    own = _offset(decision) if decision.progress is None else decision.progress
    known = before.progress if before is not None else {}
    kept = {alias: at for alias, at in known.items() if alias in config.joined}
    return {**kept, config.flow.source: own}


def _each(
    decisions: Iterable[SyncDecision], action: SyncAction, reason: str
) -> Iterator[SyncDecision]:
    return (replace(decision, action=action, reason=reason) for decision in decisions)


def _read_back(decision: SyncDecision, now: Commits, failure: str) -> SyncDecision:
    found = now.get(decision.partition)
    if found == decision.offset:
        return replace(decision, applied=True)
    return replace(decision, action="failed", reason=failure or f"read back {found} instead")


def _offset(decision: SyncDecision) -> int:
    if decision.offset is None:
        raise ValueError(f"decision without an offset: {decision}")
    return decision.offset
