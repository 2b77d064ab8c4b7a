"""Check that the target still holds the copied records, before a claim writes anything.

A target that lost the end of its log (unclean election, lost disk, restored snapshot) ends before
the known position. Every marker of a claim makes it longer again: after as many claims as lost
records the position looks right. So the log is checked before::

    what we know        ... |901..950|951..1000|            position 1001, written in epoch 4
    the target          ... |901..950| M | M |              it ends, or continues in epoch 5, at 951
                                     ^ held: the map is cut here, what follows is copied again

- The log's end, and the offset at which its lineage diverges from the one that was read: a log that
  was cut off continues under a later epoch at the cut. Of a log without any of these epochs nothing
  is trusted, nor of one that is too short if no epoch is known.
- Where the log begins at the cut, retention may have deleted the markers of claims before it: the
  cut is earlier by as many offsets at most. Nothing else is written before a cut is reported.
- A later epoch alone proves nothing: the same leader may have been elected again between two of our
  batches. Then the batch after the boundary is the next one of the same claim, by its sequence
  number; a batch that went astray into a log that was cut off has another one.
- On a name that both flows copy into, local producers write between our batches. So only batches
  under our producer ids count there: the nearest ones on each side of the boundary.
- The batch before the position is of a claim of ours, not of a later one. Where it is gone
  (retention, compaction) the epochs and the end decide alone.

An undecidable case counts as a loss: that costs a walk, which finds and maps the present records
again, and nothing is copied twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from srm.domain.offset_map.lineage import UNKNOWN, Lineage
from srm.errors import UnavailableError
from srm.replication.batches import legacy
from srm.replication.batches.batch import BatchHeader, batches, next_sequence
from srm.replication.log_reader import ONE_BATCH, LogReader, OutOfRangeError, fetches
from srm.replication.mapping.start_positions import Start

_STEPS_BACK: Final = 1000
"""Batches of others that are passed one by one; below them nothing of the map is trusted."""
_FIRST_REACH: Final = 100
"""Offsets that a search back for a batch of ours covers first; each further one is longer."""
_FURTHER: Final = 8


@dataclass(frozen=True, slots=True)
class HeldLog:
    """The part of the copy in the target's log.

    ``end``: the known position, or the lower offset up to which the log is as expected.
    ``log_start``, ``log_end``: the offsets of the log.
    ``lineage``: that of the copy, with epochs that began between its batches.
    """

    end: int
    log_start: int
    log_end: int
    lineage: Lineage = UNKNOWN

    @property
    def is_exact(self) -> bool:
        """False if the copy may end before ``end``, where retention has deleted the log."""
        return self.end > self.log_start or not self.log_start

    def end_without(self, markers: int) -> int:
        """Return the lowest offset where the copy can end, if at most ``markers`` followed it."""
        return self.end if self.is_exact else max(0, self.end - markers)


@dataclass(frozen=True, slots=True)
class _OurSide:
    """The batches of the log that count: all, or those under our ids where others write, too."""

    target: LogReader
    log_start: int
    ids: frozenset[int] | None

    async def last_before(self, end: int) -> BatchHeader | None:
        """Return the last batch before an offset; None if there is none, or compaction took it."""
        found = await self.target.batch_at(end - 1) if end > self.log_start else None
        if self.ids is None or (found is not None and found.producer_id in self.ids):
            return found
        found, first, reach = None, end, _FIRST_REACH
        while found is None and first > self.log_start:
            first, until = max(self.log_start, end - reach), first
            async for batch in self._ours(first, until):
                found = batch
            reach *= _FURTHER
        return found

    async def first_from(self, at: int, end: int) -> BatchHeader | None:
        """Return the first batch from an offset on; None as before."""
        if self.ids is None:
            return await self.target.batch_at(at)
        async for batch in self._ours(at, end):
            return batch
        return None

    async def _ours(self, first: int, end: int) -> AsyncIterator[BatchHeader]:
        async for wanted, fetched in fetches(self.target, first):
            for batch in batches(fetched.records, legacy.convert):
                if batch.base_offset >= end:
                    return
                if self.ids and batch.producer_id in self.ids and batch.last_offset >= wanted:
                    yield batch


async def held_log(target: LogReader, start: Start, *, is_shared: bool = False) -> HeldLog:
    """Compare the target's log with the known position; ``is_shared``: others write to it, too."""
    log_start, log_end = await target.wire.log_range(target.partition)
    if not start.has_position or start.target_next <= log_start:
        return HeldLog(start.target_next, log_start, log_end, start.target_lineage)
    try:
        written_by = frozenset({start.written_by.id} if start.written_by else ())
        ids = start.producer_ids | written_by if is_shared else None
        ours = _OurSide(target, log_start, ids)
        held, lineage = await _held_by_epochs(ours, start, log_end)
        end = min(start.target_next, log_end, held)
        end = await _held_by_producers(ours, start, end)
        if end < start.target_next:
            # Other requests use the name; this one uses the id and fails for a re-created topic.
            await target.fetch(end, max_bytes=ONE_BATCH)
    except OutOfRangeError as error:
        raise UnavailableError(f"{error}: the log changes at the moment") from error
    return HeldLog(end, log_start, log_end, lineage)


async def _held_by_epochs(ours: _OurSide, start: Start, log_end: int) -> tuple[int, Lineage]:
    """Return the first offset of something else than our copy, and the lineage up to there."""
    target, log_start = ours.target, ours.log_start
    lineage, at = start.target_lineage, start.target_next
    while True:
        end, is_exact = await target.shared_end(lineage, at)
        if end >= at:
            return at, lineage
        if not (lineage and is_exact):
            return log_start, lineage
        if not log_start < end < log_end:
            return max(log_start, end), lineage
        before, after = await ours.last_before(end), await ours.first_from(end, at)
        if before is None or after is None or not _continues(before, after):
            return end, lineage
        first = await target.batch_from(end) or after  # of whoever wrote it
        longer = lineage.with_unread(first.leader_epoch, end)
        if longer is None:
            return end, lineage
        lineage = longer


async def _held_by_producers(ours: _OurSide, start: Start, end: int) -> int:
    """Return the offset after the last batch that can precede the position, at most ``end``."""
    for _ in range(_STEPS_BACK):
        if end <= ours.log_start:
            return end
        batch = await ours.last_before(end)
        if ours.ids is not None and not start.target_lineage:
            # Without epochs, a lost end that others filled again looks like what they wrote before.
            end = min(end, batch.last_offset + 1 if batch else ours.log_start)
        if batch is None or _can_stand(batch, start):
            return end
        end = batch.base_offset
    return ours.log_start


def _continues(before: BatchHeader, after: BatchHeader) -> bool:
    """Return whether a batch is the next of the same claim; the marker precedes the first."""
    if (before.producer_id, before.producer_epoch) != (after.producer_id, after.producer_epoch):
        return False
    if after.is_control:
        return False
    wanted = 0
    if not before.is_control:
        wanted = next_sequence(before.base_sequence, before.last_offset_delta + 1)
    return after.base_sequence == wanted


def _can_stand(batch: BatchHeader, start: Start) -> bool:
    """Return whether a batch can precede the position: of no later claim, and not foreign."""
    known = start.written_by
    if known is not None and batch.producer_id == known.id:
        return batch.producer_epoch <= known.epoch
    return batch.is_control or not start.producer_ids or batch.producer_id in start.producer_ids
