"""Checkpoints: where each group stands on a flow's source, and where it would go on on the target.

Four rows, two per flow (P and B are the clusters, ``Payments`` is produced on both)::

    commit on P in Payments    --P->B forward-->  P.Payments on B   map of P->B
    commit on P in B.Payments  --P->B reverse-->  Payments   on B   map of B->P read backwards
    commit on B in Payments    --B->P forward-->  B.Payments on P   map of B->P
    commit on B in P.Payments  --B->P reverse-->  Payments   on P   map of P->B read backwards

Forward follows MM2's MirrorCheckpointTask, reverse KIP-1098, both with the exact map instead of
MM2's 64 offset syncs. A commit that srm itself carried over from the flow's target is no progress
of the group and is not carried back (see :mod:`srm.domain.ledger`).

Where the map does not reach a commit (the copy is behind, or its latest report is), the outcome
says so with what remains. Its checkpoint is then the pair at which the map ends: both offsets of it
are true, the group has read everything before, so nothing is skipped and less is re-read than from
an older checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from srm.domain.filters import NameFilter
from srm.domain.ledger import Ledger
from srm.domain.mm2_records import Checkpoint
from srm.domain.offset_map import NoMap, NotCopiedYet, OffsetMap, Translated, Translation
from srm.domain.policy import DefaultReplicationPolicy
from srm.domain.topics import Flow, TopicPartition

Direction = Literal["forward", "reverse"]

CheckpointState = Literal[
    "translated",  # exact: this is where the group goes on
    "not-copied-yet",  # forward: records before the commit are not copied yet
    "map-behind",  # reverse: the map does not reach the commit on the replica yet
    "no-map",  # the partition was never copied
    "no-target",  # the topic or partition is missing on the flow's target
    "past-end",  # the offset lies behind the end of a log: topic truncated or re-created
    "own-write",  # srm wrote this commit itself, coming from the flow's target
    "not-selected",  # no filter selects the topic
]


@dataclass(frozen=True)
class Selection:
    """Which topics and groups a flow checkpoints, and how topics are called on its target.

    ``reverse_topics`` names replicas as they are called on the flow's source (``P.Payments`` on B).
    """

    flow: Flow
    policy: DefaultReplicationPolicy
    topics: NameFilter
    groups: NameFilter
    reverse_topics: NameFilter
    reverse_enabled: bool

    def direction(self, topic: str) -> Direction | None:
        """Say how commits on a topic of the flow's source are translated, None: not at all."""
        if self.policy.is_internal_topic(topic):
            return None
        if self.policy.topic_source(topic) == self.flow.target:
            return (
                "reverse" if self.reverse_enabled and self.reverse_topics.matches(topic) else None
            )
        if self.policy.is_cycle(topic, self.flow.target) or not self.topics.matches(topic):
            return None
        return "forward"

    def mapped_topic(self, topic: str, direction: Direction) -> str:
        """Name under which the map knows the topic: that on the source of the copying flow."""
        if direction == "forward":
            return topic
        return self.policy.upstream_topic(topic) or topic

    def downstream_topic(self, topic: str, direction: Direction) -> str:
        """Name of the topic on the flow's target."""
        if direction == "forward":
            return self.policy.format_remote_topic(self.flow.source, topic)
        return self.mapped_topic(topic, direction)

    def selects_group(self, group: str, commits: Mapping[TopicPartition, int]) -> bool:
        """Whether a group is checkpointed: its name, and a commit on a forward or reverse topic."""
        return self.groups.matches(group) and any(
            self.direction(partition.topic) is not None for partition in commits
        )

    def why_not(self, topic: str) -> str:
        """Say why commits on a topic are not translated, with the command that changes it."""
        flow = self.flow
        if self.policy.is_internal_topic(topic):
            return "internal topics are not replicated"
        if self.policy.topic_source(topic) != flow.target:
            return (
                f"topic not selected: srm-control topics --source {flow.source} "
                f"--target {flow.target} --add {topic}"
            )
        if not self.reverse_enabled:
            return f"reverse checkpoints are off: set {flow}.reverse.checkpointing.enabled=true"
        return (
            f"replica not listed: srm-control reverse-checkpointed-topics --source {flow.source} "
            f"--target {flow.target} --add {topic}"
        )


@dataclass(frozen=True, slots=True)
class Bounds:
    """First offset a partition still holds, and its last stable offset."""

    start: int
    end: int


@dataclass(frozen=True)
class Facts:
    """What was fetched to translate commits; fetch commits first, then the maps, then the bounds.

    ``forward_maps`` are of the flow, ``reverse_maps`` of the opposite flow, each by the partition
    of its own source topic; so are ``forward_errors`` and ``reverse_errors``, which say why a map
    cannot be used. ``ledger`` is that of the flow's source.
    """

    forward_maps: Mapping[TopicPartition, OffsetMap] = field(default_factory=dict)
    reverse_maps: Mapping[TopicPartition, OffsetMap] = field(default_factory=dict)
    forward_errors: Mapping[TopicPartition, str] = field(default_factory=dict)
    reverse_errors: Mapping[TopicPartition, str] = field(default_factory=dict)
    upstream_bounds: Mapping[TopicPartition, Bounds] = field(default_factory=dict)
    downstream_bounds: Mapping[TopicPartition, Bounds] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)


@dataclass(frozen=True, slots=True)
class CheckpointOutcome:
    """What became of one committed offset.

    Attributes:
        upstream: the partition as named on the flow's source; ``upstream_offset`` is the commit.
        downstream: the same partition on the flow's target, None where nothing selects it.
        downstream_offset: where the group goes on, or for an unfinished state where it would.
        reached: upstream offset that ``downstream_offset`` stands for: the commit itself in the
            state ``translated``, less where the map does not reach it.
        remaining: offsets missing in the map up to the commit.
        lost: records the target (reverse: the original) has already dropped.
        uncopied: source offsets from the commit to the first record ever copied.
        reason: for people, empty when translated without remarks.
    """

    group: str
    upstream: TopicPartition
    upstream_offset: int
    state: CheckpointState
    direction: Direction | None = None
    downstream: TopicPartition | None = None
    downstream_offset: int | None = None
    reached: int | None = None
    remaining: int = 0
    lost: int = 0
    uncopied: int = 0
    reason: str = ""

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The MM2 checkpoint to keep, None where none is known to be true."""
        if self.state not in ("translated", "not-copied-yet", "map-behind"):
            return None
        if self.downstream is None or self.downstream_offset is None or self.reached is None:
            return None
        return Checkpoint(self.group, self.downstream, self.reached, self.downstream_offset)


def checkpoint_outcomes(
    group: str, commits: Mapping[TopicPartition, int], selection: Selection, facts: Facts
) -> tuple[CheckpointOutcome, ...]:
    """Translate all commits of one group on the flow's source, in the order of their partitions."""
    return tuple(
        _outcome(group, partition, offset, selection, facts)
        for partition, offset in sorted(commits.items())
    )


def _outcome(
    group: str, upstream: TopicPartition, offset: int, selection: Selection, facts: Facts
) -> CheckpointOutcome:
    direction = selection.direction(upstream.topic)
    if direction is None:
        why = selection.why_not(upstream.topic)
        return CheckpointOutcome(group, upstream, offset, "not-selected", reason=why)
    downstream = TopicPartition(
        selection.downstream_topic(upstream.topic, direction), upstream.partition
    )
    blank = CheckpointOutcome(group, upstream, offset, "no-map", direction, downstream)
    bounds = facts.downstream_bounds.get(downstream)
    if bounds is None:
        return replace(
            blank,
            state="no-target",
            reason=f"{downstream} does not exist on {selection.flow.target}",
        )
    mapped = TopicPartition(selection.mapped_topic(upstream.topic, direction), upstream.partition)
    forward = direction == "forward"
    error = (facts.forward_errors if forward else facts.reverse_errors).get(mapped)
    if error is not None:
        return replace(blank, reason=f"the offset map of {mapped} cannot be used: {error}")
    if forward:
        outcome = _forward(blank, facts.forward_maps.get(mapped, OffsetMap()), bounds, facts)
    else:
        outcome = _reverse(blank, facts.reverse_maps.get(mapped, OffsetMap()), bounds)
    return _if_progress(_within(outcome, bounds), selection.flow, facts.ledger)


def _forward(
    blank: CheckpointOutcome, offsets: OffsetMap, bounds: Bounds, facts: Facts
) -> CheckpointOutcome:
    commit = blank.upstream_offset
    found = offsets.forward(commit, bounds.start)
    if isinstance(found, NoMap):
        return replace(
            blank, reason=f"{blank.upstream} was never copied: is the replicator running?"
        )
    own_bounds = facts.upstream_bounds.get(blank.upstream)
    if isinstance(found, Translated):
        uncopied = _uncopied(offsets, max(commit, own_bounds.start if own_bounds else commit))
        return replace(_translated(blank, found), reached=commit, uncopied=uncopied)
    if own_bounds is not None and commit > own_bounds.end:
        return replace(
            blank,
            state="past-end",
            reason=f"the commit {commit} is past the end {own_bounds.end} of {blank.upstream}",
        )
    end = offsets.forward(commit - found.remaining, bounds.start)
    return _unfinished(blank, "not-copied-yet", found, end)


def _unfinished(
    blank: CheckpointOutcome,
    state: Literal["not-copied-yet", "map-behind"],
    found: NotCopiedYet,
    end: Translation,
) -> CheckpointOutcome:
    named = replace(
        blank,
        state=state,
        remaining=found.remaining,
        reason=f"{found.remaining} offsets up to the commit are not in the map yet",
    )
    if not isinstance(end, Translated):
        return named
    reached = blank.upstream_offset - found.remaining
    return replace(named, downstream_offset=end.offset, lost=end.lost, reached=reached)


def _reverse(blank: CheckpointOutcome, offsets: OffsetMap, bounds: Bounds) -> CheckpointOutcome:
    commit = blank.upstream_offset
    found = offsets.backward(commit)
    if isinstance(found, NoMap):
        return replace(blank, reason=f"the map knows no record of {blank.upstream}")
    if isinstance(found, Translated):
        outcome = replace(_translated(blank, found), reached=commit)
    else:
        end = offsets.backward(commit - found.remaining)
        outcome = _unfinished(blank, "map-behind", found, end)
    back = outcome.downstream_offset
    if back is None or back >= bounds.start:
        return outcome
    lost = offsets.source_records_between(back, bounds.start)
    return replace(
        outcome, downstream_offset=bounds.start, lost=lost, reason=_with_loss(outcome.reason, lost)
    )


def _translated(blank: CheckpointOutcome, found: Translated) -> CheckpointOutcome:
    return replace(
        blank,
        state="translated",
        downstream_offset=found.offset,
        lost=found.lost,
        reason=_with_loss("", found.lost),
    )


def _with_loss(reason: str, lost: int) -> str:
    if not lost:
        return reason
    loss = f"{lost} records were already deleted by retention"
    return f"{reason}; {loss}" if reason else loss


def _uncopied(offsets: OffsetMap, start: int) -> int:
    return max(0, offsets.runs[0].source_start - start) if offsets.runs else 0


def _within(outcome: CheckpointOutcome, bounds: Bounds) -> CheckpointOutcome:
    offset = outcome.downstream_offset
    if offset is None or offset <= bounds.end:
        return outcome
    return replace(
        outcome,
        state="past-end",
        downstream_offset=None,
        reached=None,
        reason=f"the map says {offset}, but {outcome.downstream} ends at {bounds.end}: "
        "was the topic truncated or created again?",
    )


def _if_progress(outcome: CheckpointOutcome, flow: Flow, ledger: Ledger) -> CheckpointOutcome:
    entry = ledger.entry(outcome.group, outcome.upstream)
    # What came from a third cluster is news to this flow's target, what came from there is not.
    if entry is None or entry.origin != flow.target or not entry.owns(outcome.upstream_offset):
        return outcome
    return replace(
        outcome,
        state="own-write",
        reason=f"srm wrote this offset ({entry.operation}), {flow.target} knows it already",
    )
