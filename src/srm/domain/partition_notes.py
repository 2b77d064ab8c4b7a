"""What people must know of a partition that continues: what its copy lacks, what was strange.

Each slot keeps notes of its own, under its own key, so nobody overwrites what another has noted: a
partition that moves, or whose owner starts again, loses none. They are about the copy of one topic
id, and count as long as that topic exists.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from srm.domain import json_records
from srm.domain.replication_records import PartitionStatus

KEY_PREFIX = b"notes:"


@dataclass(frozen=True, slots=True)
class PartitionNotes:
    """Notes of one slot about one partition; ranges are source offsets, [from, to).

    ``lost`` counts all offsets that can never be copied, in so many ``ranges``; ``lost_from`` and
    ``lost_to`` are the newest range (ranges that touch are one) and ``loss`` says why. ``strange``
    is the newest note about the logs that is no loss. ``begins`` is the target offset before which
    a topic that had the name before has left its records, where there are any.
    """

    slot: str
    topic: str
    partition: int
    topic_id: str
    lost: int = 0
    ranges: int = 0
    lost_from: int | None = None
    lost_to: int | None = None
    loss: str = ""
    strange: str = ""
    time_ms: int = 0
    begins: int | None = None

    def with_loss(self, lost_from: int, lost_to: int, what: str, now_ms: int) -> PartitionNotes:
        """Note that source records can never be copied."""
        adjoins = self.lost_to == lost_from
        return replace(
            self,
            lost=self.lost + lost_to - lost_from,
            ranges=self.ranges + (not adjoins),
            lost_from=self.lost_from if adjoins else lost_from,
            lost_to=lost_to,
            loss=what,
            time_ms=now_ms,
        )

    def with_strange(self, what: str, now_ms: int) -> PartitionNotes:
        """Note something that is no loss; only the newest is kept."""
        return replace(self, strange=what, time_ms=now_ms)

    def with_begin(self, target_offset: int, now_ms: int) -> PartitionNotes:
        """Note that what stands before a target offset is of a topic that had the name before."""
        return replace(self, begins=target_offset, time_ms=self.time_ms or now_ms)

    @property
    def text(self) -> str:
        """Losses and what was strange in one line, with the time of the newest note."""
        told = []
        if self.lost:
            offsets = "source offset" if self.lost == 1 else "source offsets"
            ranges = f" in {self.ranges} ranges, the last one" if self.ranges > 1 else ","
            newest = f"{self.lost_from} to {self.lost_to}"
            told.append(f"lost {self.lost} {offsets}{ranges} {newest}: {self.loss}")
        if self.strange:
            told.append(self.strange)
        if not told:
            return ""
        at = datetime.fromtimestamp(self.time_ms / 1000, UTC)
        return f"{'; '.join(told)} ({at:%Y-%m-%d %H:%M} UTC)"

    def key(self) -> bytes:
        """Encode the record key."""
        return KEY_PREFIX + f"{self.slot}:{self.topic}-{self.partition}".encode()

    def value(self) -> bytes:
        """Encode the record value."""
        return json_records.encode(self)

    @classmethod
    def decode(cls, value: bytes) -> PartitionNotes:
        """Decode a record value.

        Raises:
            IntegrityError: the value is not a slot's notes.
        """
        return json_records.decode(cls, "notes of a partition", value)


def begin_of_copy(notes: Collection[PartitionNotes]) -> int | None:
    """Return where the copy of a topic begins that was created again, None where nobody noted it.

    Slots see more of the former topic's records one after another, never less.
    """
    return max((entry.begins for entry in notes if entry.begins is not None), default=None)


def with_notes(
    status: PartitionStatus | None, notes: Collection[PartitionNotes]
) -> PartitionStatus | None:
    """Add to a partition's status what slots have noted about it, the newest last.

    A stopped partition has the range that keeps it from continuing, if any, not one that it passed.
    """
    if not notes:
        return status
    ordered = sorted(notes, key=lambda entry: entry.time_ms)
    newest = next((n for n in reversed(ordered) if n.lost), ordered[-1])
    status = status or PartitionStatus(newest.topic, newest.partition, "copying")
    begins = begin_of_copy(notes)
    former = (
        f"the topic was created again: its copy begins at target offset {begins}, what stands "
        "before that is of the former topic"
        if begins is not None
        else ""
    )
    texts = (status.reason, *(entry.text for entry in ordered), former)
    status = replace(status, reason="; ".join(text for text in texts if text))
    if status.state == "stopped":
        return status
    return replace(status, lost_from=newest.lost_from, lost_to=newest.lost_to)
