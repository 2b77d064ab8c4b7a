"""Shapes of return of a paused flow's source after a disaster, and its residue.

==========  ====================================================================================
shape       means
==========  ====================================================================================
same        the copied topics, each log at least as long as its copy
shorter     the same topics, but a log was truncated (an unclean restart, an older disk)
rebuilt     a topic of another id has the name: the cluster was emptied or rebuilt
missing     a copied topic does not exist any more
new         a topic that was never copied; all of it is residue
==========  ====================================================================================

The flow's shape is the worst of its topics'; equal topic ids mean the same topic.
"""

from __future__ import annotations

import base64
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from srm.domain.flow_state.pause import Pause
from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.flow_state.reported_positions import CopiedTopic
from srm.domain.moves.records.outcome import GroupOutcome
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.offset_ranges import OffsetRange
from srm.domain.text.amount import amount

Shape = Literal["same", "shorter", "rebuilt", "missing", "new"]
SHAPES: Final[tuple[Shape, ...]] = ("rebuilt", "missing", "shorter", "new", "same")
"""Shapes, the worst first."""


@dataclass(frozen=True, slots=True)
class CopyEnd:
    """End of the copy of one partition, by both logs; offsets of the source, [from, to).

    ``known_next`` (source) and ``target_next`` (target) are the known position, possibly older.
    ``log_end`` is the last stable offset, below ``high_watermark`` while a transaction is open.
    ``cut_from`` is where the source's log ends or diverges, if that is before the end of the copy.
    ``gone_to`` is the log start, if retention has deleted records after the end of the copy.
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
        """Log start, if records before it were still to be copied."""
        return self.log_start if self.log_start > self.source_next else None


@dataclass(frozen=True, slots=True)
class PartitionReturn:
    """One source partition; offsets are source offsets, times epoch milliseconds.

    ``copied_to`` is the end of the copy, ``log_end`` the last stable offset, see :class:`CopyEnd`.
    ``records`` is the residue: records between ``copied_to`` and ``log_end``.
    ``first_ms`` and ``last_ms`` are timestamps of the residue.
    ``cut_from`` to ``cut_to`` were copied and are gone from the source.
    ``only_copied`` is how many records of those the copy still has (None: not counted).
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
        """Source offsets [from, to) with records that were not copied, None without any."""
        return self.tail if self.records else None

    @property
    def tail(self) -> tuple[int, int] | None:
        """Source offsets [from, to) after the copy, None if there are none or they are unknown."""
        start = max(self.copied_to, self.log_start)
        return None if self.error or start >= self.log_end else (start, self.log_end)

    @property
    def has_open_transaction(self) -> bool:
        """True while the outcome of a transaction at the end of the log is unknown."""
        return self.high_watermark > self.log_end


@dataclass(frozen=True, slots=True)
class TopicReturn:
    """One topic of a flow; ``evidence`` is the evidence of its shape.

    ``routed_by`` is the move whose route leads clients to the source, empty without one: their new
    records there do not count. Heartbeats are merged by default.
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
        """Number of records of the residue."""
        return sum(entry.records for entry in self.partitions)

    @property
    def only_copied(self) -> int:
        """Number of records that the copy has and the source has lost."""
        return sum(entry.only_copied or 0 for entry in self.partitions)


@dataclass(frozen=True, slots=True)
class SourceReturn:
    """Inspection result for the source of a flow; ``groups`` had read records of the residue."""

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
        """Number of records of the residue."""
        return sum(topic.records for topic in self.topics)

    @property
    def partitions(self) -> tuple[PartitionReturn, ...]:
        """Partitions of all topics."""
        return tuple(entry for topic in self.topics for entry in topic.partitions)


def topic_shape(
    topic: str, now: str | None, known: Collection[CopiedTopic], copied_ids: Collection[str]
) -> tuple[Shape, str]:
    """Compare a name's current topic with those copied; return the shape and the evidence."""
    before = sorted({entry.topic_id for entry in known if entry.topic == topic})
    if now is not None and (now in before or now in copied_ids):
        return "same", f"topic id {now}, as when it was copied"
    named = " or ".join(before)
    if now is None:
        return "missing", f"no such topic; the copied one had id {named}"
    if before:
        return "rebuilt", f"topic id {now}; the copied one had {named}"
    return "new", f"topic id {now}: never copied"


def worst(shapes: Iterable[Shape]) -> Shape:
    """Return the worst of some shapes, ``same`` for none."""
    found = set(shapes)
    return next((shape for shape in SHAPES if shape in found), "same")


def topic_return(
    topic: str, topic_id: str, told: tuple[Shape, str], partitions: Iterable[PartitionReturn]
) -> TopicReturn:
    """Combine partitions; truncated logs make a topic shorter."""
    shape, evidence = told
    found = tuple(partitions)
    cut = [entry for entry in found if entry.cut_from is not None]
    if shape == "same" and cut:
        shape = "shorter"
        evidence += "; " + ", ".join(
            f"{entry.name} ends at {entry.cut_from}, but was copied to {entry.cut_to}"
            for entry in cut[:3]
        )
        evidence += f", {len(cut) - 3} more" if len(cut) > 3 else ""
    return TopicReturn(topic, topic_id, shape, evidence, found)


def describe(shape: Shape, source: str, was: str, now: str) -> str:
    """Describe a return in one sentence; ``was``: former id of the cluster, empty if unknown."""
    cluster = "the same cluster" if was in ("", now) else f"cluster {now}, formerly {was},"
    return {
        "same": f"{source} is {cluster} with all copied records",
        "new": f"{source} is {cluster} with all copied records, and with topics never copied",
        "shorter": f"{source} is {cluster}, but logs were truncated: an unclean restart",
        "missing": f"{source} is {cluster}, but copied topics are missing",
        "rebuilt": f"{source} is {cluster} emptied or rebuilt: topics have other ids",
    }[shape]


def explain_gone(entry: PartitionReturn) -> str:
    """Return the offsets that can no longer be copied, as text; empty if there are none."""
    if entry.gone_from is None:
        return ""
    count = amount(entry.log_start - entry.gone_from, "offset")
    return f"{count} from {entry.gone_from} on were deleted by retention before they were copied"


Wanted = tuple[AssignedPartition, OffsetRange]
"""A range of source offsets of a partition."""


@dataclass(frozen=True, slots=True)
class ResidueRecord:
    """One record of the residue; ``timestamp`` is in epoch milliseconds, -1 for none."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


class Counting:
    """Mutable counter of the records of a range; ``below``: of those before each mark."""

    def __init__(self, marks: Iterable[int] = ()) -> None:
        self.below = dict.fromkeys(marks, 0)
        self.records = 0
        self.first_ms: int | None = None
        self.last_ms: int | None = None

    def take(self, offsets: Sequence[int], times: Sequence[int]) -> None:
        """Count records by their offsets, in order, and timestamps."""
        if not offsets:
            return
        self.records += len(offsets)
        for mark in self.below:
            self.below[mark] += bisect_left(offsets, mark)
        earliest, latest = min(times), max(times)
        self.first_ms = earliest if self.first_ms is None else min(self.first_ms, earliest)
        self.last_ms = latest if self.last_ms is None else max(self.last_ms, latest)


def json_row(record: ResidueRecord) -> dict[str, Any]:
    """Return a record as a JSON object; other bytes than UTF-8 in base64, under ``NAME_base64``."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "time_ms": record.timestamp,
        **_text("key", record.key),
        **_text("value", record.value),
        "headers": [{"name": name, **_text("value", value)} for name, value in record.headers],
    }


def _text(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
