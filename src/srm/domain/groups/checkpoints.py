"""Checkpoints: the offset of each group on a source, and where it would continue.

Four rows, two per flow (P and B are the clusters, ``Payments`` is produced on both)::

    commit on P in Payments    --P->B forward-->  P.Payments on B   map of P->B
    commit on P in B.Payments  --P->B reverse-->  Payments   on B   map of B->P read backwards
    commit on B in Payments    --B->P forward-->  B.Payments on P   map of B->P
    commit on B in P.Payments  --B->P reverse-->  Payments   on P   map of P->B read backwards

Forward follows MM2's MirrorCheckpointTask, reverse KIP-1098, both with the exact map instead of
MM2's 64 offset syncs. A checkpoint is the group's offset, whichever client wrote the commit.
:mod:`srm.domain.groups.group_sync` alone handles commits that srm itself carried over.

If the map does not reach a commit (the copy or its latest report lags), the outcome says so, with
the remaining offsets. Its checkpoint is then the pair at the end of the map: both of its offsets
are true, as the group has read everything before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from srm.domain.groups.mm2_records import NO_IDS, Checkpoint, TopicIds
from srm.domain.groups.translation import UNFINISHED, Direction, PartitionFacts, State, translate
from srm.domain.names.flow_topics import FlowTopics
from srm.domain.names.policy import NameFilter
from srm.domain.names.topics import TopicPartition
from srm.domain.text.amount import Reason, amount, some, utc

CheckpointState = State | Literal["not-selected"]
"""States of a translation, and: no filter selects the topic."""


def deletion(source: str, since_ms: int) -> str:
    """Return since when a group's commits have been gone, in the words of plans and srm why."""
    return f"deleted on {source} since {utc(since_ms)}"


def deletions(source: str, groups: Mapping[str, int], *, may_name: bool) -> Iterator[str]:
    """Yield the line about deleted groups that a move leaves out; 0: deleted since the last look.

    The time is that of the first deletion. ``may_name``: a move may name them all the same.
    """
    names, since_ms = sorted(groups), min(groups.values(), default=0)
    since = deletion(source, since_ms) if since_ms else f"deleted on {source}"
    later = " or later" if since_ms else ""
    if len(names) == 1:
        named = f"; --group {names[0]} moves it all the same" if may_name else ""
        yield f"group {names[0]} is not moved: {since}{named}"
    elif names:
        which = f"{amount(len(names), 'group')} ({some(names)})"
        named = "; --group moves them all the same" if may_name else ""
        yield f"{which} are not moved: {since}{later}{named}"


@dataclass(frozen=True)
class Selection:
    """Topics and groups that a flow checkpoints; ``reverse_topics`` names copies on its source.

    The direction of a topic is found once: thousands of groups may commit on it.
    """

    names: FlowTopics
    groups: NameFilter
    reverse_topics: NameFilter
    reverse_enabled: bool
    _cache: dict[str, Direction | None] = field(init=False, default_factory=dict, compare=False)

    def direction(self, topic: str) -> Direction | None:
        """Return the direction of commits on a topic of the flow's source, None if unselected."""
        if topic not in self._cache:
            self._cache[topic] = self._find_direction(topic)
        return self._cache[topic]

    def _find_direction(self, topic: str) -> Direction | None:
        if self.names.is_internal(topic):
            return None
        if self.names.is_replica(topic) and not self.names.is_shared(topic):
            selected = self.reverse_enabled and self.reverse_topics.matches(topic)
            return "reverse" if selected else None
        if self.names.is_cycle(topic) or not self.names.listed.matches(topic):
            return None
        return "forward"

    def mapped_topic(self, topic: str, direction: Direction) -> str:
        """Return the topic's name in the map: that on the source of the copying flow."""
        return topic if direction == "forward" else self.names.origin(topic) or topic

    def downstream(self, partition: TopicPartition, direction: Direction) -> TopicPartition:
        topic, number = partition
        forward = direction == "forward"
        name = self.names.remote(topic) if forward else self.mapped_topic(topic, direction)
        return TopicPartition(name, number)

    def upstream_topic(self, topic: str) -> str:
        """Return the topic of the commits whose checkpoints name this one."""
        names = self.names
        return names.original(topic) or names.replica(topic)

    def covers(self, commits: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions whose checkpoints translate these commits, selected or not."""
        found = set[TopicPartition]()
        for place in commits:
            names, topic = self.names, place.topic
            is_replica = names.is_replica(topic) and not names.is_shared(topic)
            found.add(self.downstream(place, "reverse" if is_replica else "forward"))
        return found

    def selects_group(self, group: str, commits: Mapping[TopicPartition, int]) -> bool:
        return self.groups.matches(group) and any(
            self.direction(partition.topic) is not None for partition in commits
        )

    def obstacle(self, topic: str) -> Reason:
        """Return why commits on a topic are not translated, with the command that changes it."""
        flow = self.names.flow
        if self.names.is_internal(topic):
            return Reason("internal topics are not replicated")
        if not self.names.is_replica(topic):
            if (pattern := self.names.listed.excluded_by(topic)) is not None:
                command = f"srm why {topic} --flow '{flow}'"
                return Reason(f"topic denied by the pattern {pattern}", command)
            return Reason("topic not selected", f"srm-control topics {flow.options} --add {topic}")
        if not self.reverse_enabled:
            action = f"set {flow}.reverse.checkpointing.enabled=true"
            return Reason("reverse checkpoints are off", action)
        action = f"srm-control reverse-checkpointed-topics {flow.options} --add {topic}"
        return Reason("replica not listed", action)


FactsOf = Callable[[TopicPartition, Direction], PartitionFacts]
"""Looks up the facts of a partition of the flow's source."""
IdsOf = Callable[[TopicPartition, TopicPartition], TopicIds]
"""Looks up the ids of the topics of a partition and its counterpart, as read before the facts."""


@dataclass(frozen=True, slots=True)
class CheckpointOutcome:
    """Outcome of one committed offset, with partitions as named on the flow's clusters.

    ``downstream_offset``: where the group continues, or in an unfinished state would continue.
    ``reached``: upstream offset that corresponds to it. ``topic_ids`` were read before commit and
    map. ``is_share``: the commit is the start offset of a share group.
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
    dropped: int = 0
    refused: int = 0
    uncopied: int = 0
    reason: str = ""
    action: str = ""
    topic_ids: TopicIds = NO_IDS
    is_share: bool = False

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The MM2 checkpoint to write, None if none is known to be true."""
        if self.state != "translated" and self.state not in UNFINISHED:
            return None
        if self.downstream is None or self.downstream_offset is None or self.reached is None:
            return None
        ids = self.topic_ids.metadata(is_share=self.is_share)
        return Checkpoint(self.group, self.downstream, self.reached, self.downstream_offset, ids)

    @property
    def total_skipped(self) -> int:
        return self.dropped + self.refused + self.uncopied


def checkpoint_outcomes(
    group: str,
    commits: Mapping[TopicPartition, int],
    selection: Selection,
    facts_of: FactsOf,
    ids_of: IdsOf,
) -> tuple[CheckpointOutcome, ...]:
    """Translate all commits of one group on the flow's source, in the order of their partitions."""

    def outcome(upstream: TopicPartition, offset: int) -> CheckpointOutcome:
        direction = selection.direction(upstream.topic)
        if direction is None:
            why = selection.obstacle(upstream.topic).line
            return CheckpointOutcome(group, upstream, offset, "not-selected", reason=why)
        facts = facts_of(upstream, direction)
        found, downstream = translate(facts, offset), facts.downstream
        return CheckpointOutcome(
            *(group, upstream, offset, found.state, direction, downstream, found.offset),
            *(found.reached, found.remaining, found.dropped, found.refused, found.uncopied),
            *(found.reason, found.action, ids_of(upstream, downstream)),
        )

    return tuple(outcome(*commit) for commit in sorted(commits.items()))
