"""Notes on a partition that continues: lost records, anomalies, decisions of operators.

Slots write notes under their own keys: none overwrites another's, and none is lost with its writer.
Notes are about the copy of one topic id and count as long as that topic exists. An operator's
decision is a note in the partition of commands. Those about records that only the source has, or
has lost (docs/recover.md), are read at claims; those about foreign records (docs/operate.md) at
once.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal

from srm.domain.flow_state.replication_records import AssignedPartition, PartitionStatus
from srm.domain.offset_map.map_records import CopyId
from srm.domain.offset_map.offset_ranges import both_ends
from srm.domain.text.amount import amount
from srm.domain.text.json_records import JsonRecord

KEY_PREFIX = b"notes:"

Decision = Literal["", "keep", "discard", "cut", "after"]
"""Decision about the range of a note: kept on the source for groups that fail back (``keep``); kept
there, but skipped by them (``discard``); copied, but gone from the source (``cut``). ``after`` has
no range: the copy begins after the foreign records in the remote topic."""


@dataclass(frozen=True, slots=True)
class PartitionNotes(JsonRecord):
    """Notes of one slot about one partition; ranges are source offsets, [from, to).

    ``lost`` counts all offsets that can never be copied, ``ranges`` the ranges they are in.
    ``lost_from`` and ``lost_to`` are the newest range (adjoining ranges are one), ``loss`` its
    reason.
    ``strange`` is the newest anomaly of the logs that is not a loss.
    ``begins`` is the target offset where records of a former topic with this name end, if any.
    ``decision`` has one range; ``slot`` then makes the key unique.
    ``target_next`` is the target offset where the copied part of a ``cut`` ends.
    ``target_topic_id`` is the remote topic of a decision ``after``.
    ``epoch`` is the leader epoch of the last batch before the range's end, -1 if unknown. A
    truncated log reuses offsets, so a decision counts as far as the log still holds that epoch.
    ``over`` are shortened decisions: ``slot`` of the decision, and its new end.
    """

    KIND = "notes of a partition"
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
        """Note a decision about source offsets [from, to); ``why`` names the user."""
        topic, number, topic_id = partition
        noted = cls(f"{decision}-{request}", topic, number, topic_id)
        noted = noted.with_loss(*offsets, why, now_ms)
        return replace(noted, decision=decision, target_next=target_next, epoch=epoch)

    @classmethod
    def after_others(cls, assigned: AssignedPartition, by: str, now_ms: int) -> PartitionNotes:
        """Note the decision to copy after the foreign records in a remote topic."""
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
        """Copy that a decision ``after`` is about."""
        return self.topic_id, self.partition, self.target_topic_id

    @property
    def left_out(self) -> tuple[int, int] | None:
        """Range of source offsets that a decision excludes from copying."""
        if self.decision not in {"keep", "discard"}:
            return None
        return self.lost_from or 0, self.lost_to or 0

    def up_to(self, end: int) -> PartitionNotes | None:
        """Return the part of a note before an offset, None if nothing is left."""
        if self.left_out is None:
            return self
        start, known_end = self.left_out
        if start >= min(end, known_end):
            return None
        return self if end >= known_end else replace(self, lost_to=end, lost=end - start)

    def with_over(self, over: Mapping[str, int]) -> PartitionNotes:
        """Note the new ends of decisions whose range the log no longer holds."""
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
        """Note an anomaly that is not a loss; only the newest is kept."""
        return replace(self, strange=what, time_ms=now_ms)

    def with_begin(self, target_offset: int, now_ms: int) -> PartitionNotes:
        """Note that records before a target offset belong to a former topic with this name."""
        return replace(self, begins=target_offset, time_ms=self.time_ms or now_ms)

    @property
    def text(self) -> str:
        """Losses and anomalies in one line, with the time of the newest note."""
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


def in_force(notes: Iterable[PartitionNotes]) -> tuple[PartitionNotes, ...]:
    """Return the notes of one partition, with decisions shortened to the ends that slots found."""
    known = tuple(notes)
    ends: dict[str, int] = {}
    for note in known:
        ends |= {name: min(end, ends.get(name, end)) for name, end in note.over.items()}
    counting = (note.up_to(ends.get(note.slot, sys.maxsize)) for note in known)
    return tuple(note for note in counting if note is not None)


def begin_of_copy(notes: Collection[PartitionNotes]) -> int | None:
    """Return the largest noted offset where a re-created topic's copy begins, None if unknown."""
    return max((entry.begins for entry in notes if entry.begins is not None), default=None)


def with_notes(
    status: PartitionStatus | None, notes: Collection[PartitionNotes]
) -> PartitionStatus | None:
    """Append notes to a partition's status; a stopped one keeps the range that stopped it."""
    if not notes:
        return status
    ordered = sorted(notes, key=lambda entry: entry.time_ms)
    # Discarded records are not missing.
    missing = [n for n in ordered if n.lost and n.decision != "discard"]
    newest = missing[-1] if missing else replace(ordered[-1], lost_from=None, lost_to=None)
    status = status or PartitionStatus(newest.topic, newest.partition, "copying")
    begins = begin_of_copy(notes)
    former = (
        f"the topic was re-created: its copy begins at target offset {begins}, earlier "
        "records belong to the former topic"
        if begins is not None
        else ""
    )
    texts = (status.reason, *(entry.text for entry in ordered), former)
    status = replace(status, reason="; ".join(text for text in texts if text))
    if status.state == "stopped":
        return status
    return replace(status, lost_from=newest.lost_from, lost_to=newest.lost_to)
