r"""Restore of the topics of a rebuilt, empty cluster from their copies. Pure.

P was destroyed and rebuilt without its records. The flow ``restore.B->P`` copies ``P.Payments`` on
B into ``Payments`` on P, with its own state, on P. P->B was paused all the time. It then gets the
inverse of that offset map, as if it had copied all of that itself::

    restore.B->P    P.Payments on B   0..99 | M | 101..140
                                        \           \
                    Payments on P     M | 1..100 | 101..140 |  P->B resumes here
                                        /           /
    P->B            P.Payments on B   0..99 | M | 101..140 | M |

The progress of a restore is derived from the state that it leaves: the ids of both topics, the
position of ``restore.B->P``, that of P->B, and a :class:`RestoreRecord`, which names its pause.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from srm.domain.flow_state.replication_records import Pause
from srm.domain.names.flow_topics import FlowTopics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import Position
from srm.domain.offset_map.runs import Runs
from srm.domain.text.documents import Document

RESTORE_KEY: Final = b"restore"
SLOT: Final = "restore"
"""Slot name under which a restore reports positions of the resumed flow."""

TopicState = Literal["missing", "empty", "begun", "restored", "refused"]


@dataclass(frozen=True, slots=True)
class RestoreRecord(Document):
    """Key ``restore`` in the commands of ``restore.B->P``: P is being restored.

    ``pauses`` are the ids of its pause of P->B, before and after the restore has renewed it: under
    a later pause, P holds data of its own. ``topics``: ids of the restored originals, by name.
    """

    KIND = "restore record"
    pauses: tuple[str, ...]
    topics: Mapping[str, str]
    by: str
    time_ms: int

    def is_for(self, pause: Pause | None) -> bool:
        """Return True if it is for this pause; None means the last pause."""
        return pause is None or pause.request in self.pauses


def restore_flow(forward: Flow) -> Flow:
    """Return the flow that copies back the copies of a flow; no cluster has such an alias."""
    return Flow(f"restore.{forward.target}", forward.source)


def copies_of(
    topics: Collection[str], names: FlowTopics, clusters: Collection[str]
) -> dict[str, str]:
    """Return the originals of a flow's existing copies, by the name of the copy.

    Heartbeats are left out, and topics from a third cluster, whose flow starts again.
    """
    return {
        copy: original
        for copy in sorted(topics)
        if (original := names.original(copy)) is not None
        and not names.is_heartbeats(original)
        and names.came_from(original) not in clusters
        and names.selects(original)
    }


def invert(runs: Runs) -> Runs:
    return Runs(runs.targets, runs.sources, runs.counts)


def runs_from(runs: Runs, source_next: int) -> Runs:
    first = int((runs.source_ends <= source_next).sum())
    left = runs[first:]
    if not len(left) or left[0].source_start >= source_next:
        return left
    gone = source_next - left[0].source_start
    sources, targets, counts = (each.copy() for each in (left.sources, left.targets, left.counts))
    sources[0], targets[0], counts[0] = sources[0] + gone, targets[0] + gone, counts[0] - gone
    return Runs(sources, targets, counts)


def holes(runs: Runs, end: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of target offsets before ``end`` that are in no run."""
    at = 0
    for start, run_end in zip(runs.targets.tolist(), runs.target_ends.tolist(), strict=True):
        if start > at:
            yield at, start
        at = run_end
    if end > at:
        yield at, end


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """State of one partition; ``begins_foreign``: the original begins without a claim's marker."""

    copy_log: tuple[int, int]
    restored: Position | None = None
    forward: Position | None = None
    begins_foreign: bool = False

    @property
    def is_handed_over(self) -> bool:
        """True if the resumed flow knows all restored records."""
        mine, its = self.restored, self.forward
        if mine is None or its is None:
            return False
        return its.source_next >= mine.target_next and its.target_next >= mine.source_next

    @property
    def offsets_left(self) -> int:
        """Number of offsets of the copy not restored yet, markers included."""
        start, end = self.copy_log
        at = max(start, self.restored.source_next if self.restored else 0)
        return max(0, end - at)


@dataclass(frozen=True, slots=True)
class RestoreFacts:
    """State of one topic; ``is_former``: the flow has copied from this original, by its id.

    ``is_begun``: a restore under the current or last pause has created it, or taken it over.
    """

    topic: str
    copy: str
    partitions: tuple[RestoredPartition, ...]
    exists: bool
    is_former: bool
    is_begun: bool


@dataclass(frozen=True, slots=True)
class TopicRestore:
    """Plan for one topic: offsets to copy; ``begun``: interrupted; ``reason`` of a refusal."""

    topic: str
    copy: str
    state: TopicState
    partitions: int
    offsets: int
    reason: str = ""


def plan_topic(facts: RestoreFacts, source: str, target: str) -> TopicRestore:
    """Plan the restore of one topic, from the cluster with the copy to the rebuilt one."""
    left = sum(each.offsets_left for each in facts.partitions)

    def plan(state: TopicState, offsets: int = 0, reason: str = "") -> TopicRestore:
        return TopicRestore(facts.topic, facts.copy, state, len(facts.partitions), offsets, reason)

    if not facts.exists:
        return plan("missing", left)
    if facts.is_begun and all(each.is_handed_over for each in facts.partitions):
        return plan("restored")
    if facts.is_former:
        reason = (
            f"{facts.topic} on {target} is the original of {facts.copy} on {source}: "
            f"{target} returned with its data, see srm return"
        )
        return plan("refused", left, reason)
    foreign = [
        str(TopicPartition(facts.topic, number))
        for number, each in enumerate(facts.partitions)
        if each.begins_foreign
    ]
    if foreign:
        reason = (
            f"{', '.join(foreign)} on {target} holds records that the restore did not write: stop "
            f"the producers, delete {facts.topic} on {target} and run this again"
        )
        return plan("refused", left, reason)
    if any(each.restored is not None for each in facts.partitions):
        return plan("begun", left)
    return plan("empty", left)


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """Plan of a restore; ``forward`` is the paused flow, which resumes afterwards.

    ``unrestored``: other topics of the flow, whose originals are not restored: the pause stays.
    Clusters are Kafka's ids.
    """

    forward: Flow
    pause: Pause | None
    topics: tuple[TopicRestore, ...]
    unrestored: tuple[str, ...] = ()
    source_cluster: str = ""
    target_cluster: str = ""
    former_clusters: tuple[str, ...] = ()

    @property
    def refusals(self) -> tuple[TopicRestore, ...]:
        return tuple(each for each in self.topics if each.state == "refused")

    @property
    def to_restore(self) -> Mapping[str, TopicRestore]:
        done = ("restored", "refused")
        return {each.topic: each for each in self.topics if each.state not in done}

    @property
    def is_over(self) -> bool:
        return self.pause is None and all(each.state == "restored" for each in self.topics)
