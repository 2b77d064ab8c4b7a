"""Limits of one partition learned from the target's refusals: batch size, refused records.

A refusal says little about the record that caused it, so the copy searches for it: each refusal
costs a new claim and a walk over the logs, about 10 ms.

- Merged batch too large: batches are merged up to half its size from then on.
- Batch too large: the limit is between the largest accepted and the smallest refused batch. Batches
  above the middle are sent in pieces, so later ones are not refused.
- Record refused (its timestamp, for example): the broker usually names it; else the batch is cut in
  two until one record is left.

Ranges that operators decided not to copy are left out. Each applies to the log up to a leader
epoch: later batches have other records.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from srm.clock import now_s
from srm.domain.flow_state.anomalies import PartitionNotes
from srm.errors import IntegrityError
from srm.replication import codes
from srm.replication.batches import legacy
from srm.replication.batches.batch import BatchHeader, batches
from srm.replication.batches.rebuild import NO_LIMIT
from srm.replication.ports import DecodedRecord, Produced

_FORGET_S: Final = 600.0
"""The target's limit may have been raised: large batches are tried again after that time."""


class TargetLimits:
    """Mutable: learns from refusals and forgets what has been passed."""

    def __init__(self) -> None:
        self._refused = NO_LIMIT
        self._accepted = 0
        self._learned_at = 0.0
        self._merge_limit = NO_LIMIT
        self._cuts: set[int] = set()
        self._decided: list[tuple[int, int, int]] = []
        self.knows_something = False

    @property
    def limit(self) -> int:
        """Size in bytes above which a batch is sent in pieces."""
        if self._refused == NO_LIMIT:
            return NO_LIMIT
        return (self._accepted + self._refused) // 2

    @property
    def merge_limit(self) -> int:
        """Size in bytes up to which batches may be merged."""
        if self._merge_limit != NO_LIMIT and now_s() - self._learned_at > _FORGET_S:
            self._merge_limit = NO_LIMIT
        return self._merge_limit

    def passes(self, batch: BatchHeader) -> bool:
        """Return whether no learned limit concerns the batch."""
        if self._refused != NO_LIMIT:
            if now_s() - self._learned_at > _FORGET_S:
                self._refused, self._accepted = NO_LIMIT, 0
            elif len(batch.view) > self.limit and batch.record_count > 1:
                return False
        return not (
            any(batch.base_offset <= cut <= batch.last_offset for cut in self._cuts)
            or any(
                first <= batch.last_offset and batch.base_offset < end
                for first, end in self.left_out
            )
        )

    def parts(self, records: Sequence[DecodedRecord]) -> Iterator[Sequence[DecodedRecord]]:
        """Cut records, in offset order, into what goes into batches of its own."""
        for first, end in self.left_out:
            records = [record for record in records if not first <= record.offset < end]
        offsets = [record.offset for record in records] if self._cuts else []
        places = sorted({bisect_left(offsets, cut) for cut in self._cuts} - {0, len(records)})
        for begin, end in zip([0, *places], [*places, len(records)], strict=True):
            if end > begin:
                yield records[begin:end]

    def learn(
        self, produced: Produced, size: int, offsets: Sequence[int], *, is_merged: bool = False
    ) -> bool:
        """Learn from a refused batch; False if it cannot be cut any further."""
        if len(offsets) <= 1:
            return False
        if is_merged and produced.error in codes.TOO_LARGE and size // 2 < self.merge_limit:
            self._merge_limit = size // 2
            self._learned_at = now_s()
            return True
        self.knows_something = True
        if produced.error in codes.TOO_LARGE:
            self._refused = min(self._refused, size)
            if self._accepted >= self._refused:
                self._accepted = 0  # it depends on what the target's own compression makes of it
            self._learned_at = now_s()
            return True
        named = [offsets[index] for index in produced.records if index < len(offsets)]
        if named:
            self._cuts.update(offset + side for offset in named for side in (0, 1))
        else:
            self._cuts.add(offsets[len(offsets) // 2])
        return True

    def decide(self, decided: Iterable[PartitionNotes]) -> None:
        """Leave out what these decisions are about, and nothing of what was decided before."""
        self._decided = [(*note.left_out, note.epoch) for note in decided if note.left_out]
        self.knows_something = self.knows_something or bool(self._decided)

    def is_overtaken(self, epoch: int) -> bool:
        """Return whether a batch of a leader epoch can replace records that are left out."""
        return any(0 <= decided < epoch for _, _, decided in self._decided)

    def epoch_of_others(self, records: memoryview) -> int | None:
        """Return the leader epoch of a batch in such a place; None: none, or a damaged one."""
        with suppress(IntegrityError):
            for batch in batches(records, legacy.convert) if self._decided else ():
                ends = [
                    end for _, end, decided in self._decided if 0 <= decided < batch.leader_epoch
                ]
                if batch.base_offset < max(ends, default=0):
                    return batch.leader_epoch
        return None

    def cut(self, source_offset: int) -> None:
        """Forget what is left out from an offset on: other records will have these offsets."""
        self._decided = [
            (first, min(end, source_offset), epoch)
            for first, end, epoch in self._decided
            if first < source_offset
        ]

    def leaves_out(self, first: int, end: int) -> bool:
        """Return whether a whole range of source offsets is left out."""
        for begins, ends in self.left_out:
            if begins <= first:
                first = max(first, ends)
        return first >= end

    @property
    def left_out(self) -> list[tuple[int, int]]:
        """Ranges of source offsets that are not copied, and not passed yet."""
        return sorted((first, end) for first, end, _ in self._decided)

    def on_accept(self, size: int, source_next: int) -> None:
        """Learn from an acknowledged batch, and forget what comes before it."""
        if self._refused > size > self._accepted:
            self._accepted = size
        self._cuts = {cut for cut in self._cuts if cut > source_next}
        self._decided = [one for one in self._decided if one[1] > source_next]
        self.knows_something = bool(self._cuts or self.left_out or self._refused != NO_LIMIT)
