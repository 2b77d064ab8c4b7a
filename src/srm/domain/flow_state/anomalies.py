"""What people must know of a partition that continues: what its copy lacks, what was strange.

Each slot keeps notes of its own, under its own key, so nobody overwrites what another has noted: a
partition that moves, or whose owner starts again, loses none. They are about the copy of one topic
id, and count as long as that topic exists.

What people decide is a note as well, under a key of its own in the partition of commands. It is
about records that only the source has, or has no more, when it returns from a disaster
(docs/recover.md): slots read it when they take the partition on. Or it is about records of others
in the remote topic (docs/operate.md): slots hear of it at once.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal

from srm.domain.flow_state.replication_records import AssignedPartition, CopyId, PartitionStatus
from srm.domain.text import json_records
from srm.domain.text.amount import amount
from srm.domain.verification.offset_ranges import both_ends

KEY_PREFIX = b"notes:"

Decision = Literal["", "keep", "discard", "cut", "after"]
"""Decided about the range of a note: left on the source for groups that go back (``keep``); left
there, and passed over by them (``discard``); copied, but gone from the source (``cut``). Without a
range: the copy begins after the records of others that the remote topic holds (``after``)."""


@dataclass(frozen=True, slots=True)
class PartitionNotes:
    """Notes of one slot about one partition; ranges are source offsets, [from, to).

    ``lost`` counts all offsets that can never be copied, in so many ``ranges``; ``lost_from`` and
    ``lost_to`` are the newest range (ranges that touch are one) and ``loss`` says why. ``strange``
    is the newest note about the logs that is no loss. ``begins`` is the target offset before which
    a topic that had the name before has left its records, where there are any.

    A note of a ``decision`` has one range; ``slot`` then makes its key unique. What was copied of
    the range that a ``cut`` is about ends at the target offset ``target_next``. A decision to copy
    ``after`` the records of others is about the remote topic ``target_topic_id``.

    What is left on the source is named by content, since a log that loses its end gives its offsets
    to other records: ``epoch`` is the leader epoch of the last batch before the range's end, -1 if
    not known. The decision counts as far as the log still holds that epoch. ``over`` has the
    decisions that a slot found to count for less than their range: its new end, by their ``slot``.
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
    decision: Decision = ""
    target_next: int | None = None
    target_topic_id: str = ""
    epoch: int = -1
    over: Mapping[str, int] = field(default_factory=dict, hash=False)

    @classmethod
    def from_decision(
        cls,
        decision: Decision,
        request: str,
        partition: tuple[str, int, str],
        offsets: tuple[int, int],
        why: str,
        now_ms: int,
        target_next: int | None = None,
        epoch: int = -1,
    ) -> PartitionNotes:
        """Note a decision about source offsets [from, to).

        Args:
            decision: what was decided.
            request: unique id of whoever decided it, at that moment.
            partition: topic, partition and topic id.
            offsets: the range.
            why: for people, who decided it included.
            now_ms: epoch milliseconds.
            target_next: of a ``cut``, where the copy ended.
            epoch: leader epoch of the last batch before the range's end.
        """
        topic, number, topic_id = partition
        noted = cls(f"{decision}-{request}", topic, number, topic_id)
        noted = noted.with_loss(*offsets, why, now_ms)
        return replace(noted, decision=decision, target_next=target_next, epoch=epoch)

    @classmethod
    def after_others(cls, assigned: AssignedPartition, by: str, now_ms: int) -> PartitionNotes:
        """Note the decision to copy after the records of others that a remote topic holds."""
        decided = cls(
            f"after-{assigned.target_topic_id}",
            assigned.topic,
            assigned.partition,
            assigned.topic_id,
            decision="after",
            target_topic_id=assigned.target_topic_id,
        )
        text = f"the copy begins after the records of others in {assigned.target_topic} (by {by})"
        return decided.with_strange(text, now_ms)

    @property
    def copy_id(self) -> CopyId:
        """The copy that an ``after`` is about."""
        return self.topic_id, self.partition, self.target_topic_id

    @property
    def left_out(self) -> tuple[int, int] | None:
        """The range of source offsets that is not to be copied, by decision."""
        if self.decision not in {"keep", "discard"}:
            return None
        return self.lost_from or 0, self.lost_to or 0

    def up_to(self, end: int) -> PartitionNotes | None:
        """Return what counts of a note whose decision ends at an offset, None if nothing does."""
        if self.left_out is None:
            return self
        start, known_end = self.left_out
        if start >= min(end, known_end):
            return None
        return self if end >= known_end else replace(self, lost_to=end, lost=end - start)

    def with_over(self, over: Mapping[str, int]) -> PartitionNotes:
        """Note where decisions end of which the log does not hold the range any more."""
        return replace(self, over={**self.over, **over})

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
        newest = both_ends(self.lost_from or 0, self.lost_to or 0)
        if self.decision and self.lost:
            told.append(f"{amount(self.lost, 'source offset')}, {newest}, {self.loss}")
        elif self.lost:
            offsets = "source offset" if self.lost == 1 else "source offsets"
            ranges = f" in {self.ranges} ranges, the last one" if self.ranges > 1 else ","
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


def in_force(notes: Iterable[PartitionNotes]) -> tuple[PartitionNotes, ...]:
    """Return the notes of one partition as they count after what slots found of the decisions."""
    known = tuple(notes)
    ends: dict[str, int] = {}
    for note in known:
        ends |= {name: min(end, ends.get(name, end)) for name, end in note.over.items()}
    counting = (note.up_to(ends.get(note.slot, sys.maxsize)) for note in known)
    return tuple(note for note in counting if note is not None)


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
    # Nobody misses what was discarded.
    missing = [n for n in ordered if n.lost and n.decision != "discard"]
    newest = missing[-1] if missing else replace(ordered[-1], lost_from=None, lost_to=None)
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
