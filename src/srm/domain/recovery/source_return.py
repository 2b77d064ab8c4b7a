"""Which return it is when the dead source of a paused flow answers again, and what was left on it.

==========  ====================================================================================
shape       means
==========  ====================================================================================
same        the topics that were copied, each log at least as long as what was copied of it
shorter     the same topics, but a log has lost its end (an unclean restart, an older disk)
rebuilt     a topic of another id has the name: the cluster was emptied, or built anew
missing     a topic that was copied does not exist any more
new         a topic that was never copied; all of it is residue
==========  ====================================================================================

The flow's return is the worst of its topics'. Topic ids are random: where they are the same, it is
the same topic, whatever the cluster calls itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from srm.domain.flow_state.pause import Pause
from srm.domain.flow_state.stale_positions import CopiedTopic
from srm.domain.moves.records.outcome import GroupOutcome
from srm.domain.names.topics import TopicPartition
from srm.domain.text.amount import amount

Shape = Literal["same", "shorter", "rebuilt", "missing", "new"]
SHAPES: Final[tuple[Shape, ...]] = ("rebuilt", "missing", "shorter", "new", "same")
"""The worst first."""


@dataclass(frozen=True, slots=True)
class CopyEnd:
    """Where the copy of one partition ends, by both logs; offsets of the source, [from, to).

    ``source_next`` is where copying would go on. The position that is known, ``known_next`` on the
    source and ``target_next`` on the target, may be a moment older. ``cut_from`` is where the
    source's log ends, or parts from what was copied, if that is before it; ``gone_to`` is where
    its log begins if retention has passed the end of the copy. ``log_end`` is how far the flow
    would copy now, which is less than the ``high_watermark`` while a transaction is open.
    ``left_out`` are ranges that were decided earlier. ``epoch`` is the leader epoch of the log's
    last batch, -1 if not known.
    """

    source_next: int
    known_next: int
    target_next: int
    log_start: int
    log_end: int
    high_watermark: int
    cut_from: int | None = None
    left_out: tuple[tuple[int, int], ...] = ()
    notes: tuple[str, ...] = ()
    epoch: int = -1

    @property
    def gone_to(self) -> int | None:
        """Where the log begins now, if records before that were to be copied."""
        return self.log_start if self.log_start > self.source_next else None


@dataclass(frozen=True, slots=True)
class PartitionReturn:
    """One source partition; offsets are source offsets, times epoch milliseconds.

    ``copied_to`` is where the copy ends, ``log_end`` the last stable offset of the source, and
    ``high_watermark`` is more while a transaction is open. ``records`` of the residue were counted
    between the two, ``first_ms`` and ``last_ms`` are of their timestamps. ``cut_from`` to
    ``cut_to`` were copied and are gone: the copy still has ``only_copied`` records of them (None:
    not counted). ``epoch`` is the leader epoch of the log's last batch. ``error`` says why nothing
    can be said, or decided, of the partition.
    """

    topic: str
    partition: int
    shape: Shape
    copied_to: int = 0
    target_next: int = 0
    log_start: int = 0
    log_end: int = 0
    high_watermark: int = 0
    records: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    cut_from: int | None = None
    cut_to: int | None = None
    only_copied: int | None = None
    gone_from: int | None = None
    notes: tuple[str, ...] = ()
    epoch: int = -1
    error: str = ""

    @property
    def name(self) -> str:
        """Topic and partition."""
        return str(self.place)

    @property
    def place(self) -> TopicPartition:
        """The source partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def residue(self) -> tuple[int, int] | None:
        """Source offsets [from, to) that hold records which were not copied, None without any."""
        return self.tail if self.records else None

    @property
    def tail(self) -> tuple[int, int] | None:
        """Source offsets [from, to) after the copy, None without any, or where they are unknown."""
        start = max(self.copied_to, self.log_start)
        return None if self.error or start >= self.log_end else (start, self.log_end)

    @property
    def has_open_transaction(self) -> bool:
        """Whether it is undecided yet which of the last records will count."""
        return self.high_watermark > self.log_end


@dataclass(frozen=True, slots=True)
class TopicReturn:
    """One topic of a flow; ``evidence`` says what the shape was told from.

    Of heartbeats the residue is of no interest to anybody: they are merged unless it is said.
    ``routed_by`` is the move whose route leads the topic's clients to the source: what they write
    there does not count as residue. It is empty where no route does.
    """

    topic: str
    topic_id: str
    shape: Shape
    evidence: str
    partitions: tuple[PartitionReturn, ...] = ()
    is_heartbeats: bool = False
    routed_by: str = ""

    @property
    def records(self) -> int:
        """Records of the residue."""
        return sum(entry.records for entry in self.partitions)

    @property
    def only_copied(self) -> int:
        """Records that the copy has and the source has lost."""
        return sum(entry.only_copied or 0 for entry in self.partitions)


@dataclass(frozen=True, slots=True)
class SourceReturn:
    """What was found on the source of a flow; ``cluster_was`` is empty where nobody noted it.

    ``groups`` are those that had read of the residue.
    """

    flow: str
    shape: Shape
    evidence: str
    cluster_id: str
    cluster_was: str
    topics: tuple[TopicReturn, ...] = ()
    groups: Mapping[str, GroupOutcome] = field(default_factory=dict)
    unread_groups: tuple[str, ...] = ()
    pause: Pause | None = None

    @property
    def records(self) -> int:
        """Records of the residue."""
        return sum(topic.records for topic in self.topics)

    @property
    def partitions(self) -> tuple[PartitionReturn, ...]:
        """Those of all topics."""
        return tuple(entry for topic in self.topics for entry in topic.partitions)


def topic_shape(
    topic: str, now: str | None, known: Collection[CopiedTopic], copied_ids: Collection[str]
) -> tuple[Shape, str]:
    """Compare the topic that has a name now with those that were copied under it.

    Args:
        topic: the name.
        now: id of the topic that has it, None where there is none.
        known: what the flow has noted of topics that it copied, of any name.
        copied_ids: ids of the source topics of which a position is known.

    Returns:
        The shape, never ``shorter``, and the evidence.
    """
    before = sorted({entry.topic_id for entry in known if entry.topic == topic})
    if now is not None and (now in before or now in copied_ids):
        return "same", f"topic id {now}, as when it was copied"
    named = " or ".join(before)
    if now is None:
        return "missing", f"no such topic; the one that was copied had id {named}"
    if before:
        return "rebuilt", f"topic id {now}; the one that was copied had {named}"
    return "new", f"topic id {now}: nothing of it was ever copied"


def worst(shapes: Iterable[Shape]) -> Shape:
    """Return the worst of some shapes, ``same`` for none."""
    found = set(shapes)
    return next((shape for shape in SHAPES if shape in found), "same")


def topic_return(
    topic: str, topic_id: str, told: tuple[Shape, str], partitions: Iterable[PartitionReturn]
) -> TopicReturn:
    """Put partitions together: logs that lost their ends make a topic shorter."""
    shape, evidence = told
    found = tuple(partitions)
    cut = [entry for entry in found if entry.cut_from is not None]
    if shape == "same" and cut:
        shape = "shorter"
        evidence += "; " + ", ".join(
            f"{entry.name} ends at {entry.cut_from} of the {entry.cut_to} that were copied"
            for entry in cut[:3]
        )
        evidence += f", {len(cut) - 3} more" if len(cut) > 3 else ""
    return TopicReturn(topic, topic_id, shape, evidence, found)


def describe(shape: Shape, source: str, was: str, now: str) -> str:
    """Say in a sentence which return it is.

    Args:
        shape: of the flow.
        source: alias of the source.
        was: Kafka's id of the cluster when topics were copied, empty if nobody noted it.
        now: its id now.
    """
    cluster = "the same cluster" if was in ("", now) else f"cluster {now}, which was {was},"
    return {
        "same": f"{source} is {cluster} with all that was copied",
        "new": f"{source} is {cluster} with all that was copied, and topics that never were",
        "shorter": f"{source} is {cluster}, but logs have lost their ends: an unclean restart",
        "missing": f"{source} is {cluster}, but topics that were copied are missing",
        "rebuilt": f"{source} is {cluster} emptied or built anew: topics have other ids",
    }[shape]


def explain_gone(entry: PartitionReturn) -> str:
    """Say what of a partition nobody can copy any more, empty if there is nothing."""
    if entry.gone_from is None:
        return ""
    count = amount(entry.log_start - entry.gone_from, "offset")
    return f"{count} from {entry.gone_from} on were deleted by retention before they were copied"
