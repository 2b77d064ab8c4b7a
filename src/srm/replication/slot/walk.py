"""Which source records stand in our batches on the target: the source's side of the resume walk.

Batches are compared by their bytes, else by their records: the target may have recompressed them or
given them its own time, and a rebuilt batch need not align with one of the source. Both logs are in
the same order, so a copied record is the next one of the source, or a later one if what stands
between was never copied (refused, filtered) or is gone from the target (compacted, deleted there).
A copied record that the source does not hold is accepted with evidence only:

- the source has a later record of its key, or it is a tombstone: compaction removed it;
- the source's log begins behind the position, and it stands before the first record found;
- nothing is known of this topic id yet, and it stands before the first record found: a topic that
  had the name before left it;
- losses are accepted (``data.loss.policy=continue``): the source was truncated.

All else is undecidable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from srm.domain.offset_map import Run
from srm.errors import IntegrityError
from srm.replication.batches.batch import HEADER_SIZE, BatchHeader, batches
from srm.replication.batches.rebuild import Header, Record, decode
from srm.replication.batches.to_send import BatchToSend, batches_to_send
from srm.replication.batches.transform import Transform
from srm.replication.slot.log_reader import LogReader, OutOfRangeError

_LOOK_AHEAD_BYTES: Final = 64 << 20
_RECORD_BYTES: Final = 200
"""What a decoded record takes beside its key and value."""
_TIMESTAMPS: Final = slice(27, 43)
_FORGET_RECORDS: Final = 4096


@dataclass(frozen=True, slots=True)
class Comparison:
    """How records are compared, and what is accepted.

    ``added_headers`` are names of headers that srm adds: they are not compared, nor is it told when
    a record is missing that the ``transform`` drops. ``accepts_loss`` is data.loss.policy=continue.
    """

    added_headers: Collection[str] = ()
    accepts_loss: bool = False
    transform: Transform | None = None

    def same(self, source: Record, target: Record, *, with_time: bool) -> bool:
        """Whether the target's record is a copy of the source's."""
        return (
            (source.timestamp == target.timestamp or not with_time)
            and source.key == target.key
            and source.value == target.value
            and (
                source.headers == target.headers
                or self._own(source.headers) == self._own(target.headers)
            )
        )

    def _own(self, headers: Sequence[Header]) -> list[Header]:
        return [header for header in headers if header[0] not in self.added_headers]


class SourceWalk:
    """Walks the source beside batches of ours on the target."""

    def __init__(
        self,
        reader: LogReader,
        start: int,
        comparison: Comparison,
        *,
        fresh: bool = False,
        truncated: bool = False,
    ) -> None:
        self._reader = reader
        self._start = start
        self._comparison = comparison
        self._fresh = fresh
        self._truncated = truncated
        self._former: list[int] = []
        self._next: int | None = None
        self._epoch = -1
        self._outgoing: deque[BatchToSend] = deque()
        self._records: list[tuple[int, Record]] = []
        self._at = 0
        # Records by content, their places counted from the first one ever decoded: most records of
        # a former topic, or of a compacted source, are looked for in vain.
        self._places: dict[tuple[bytes | None, bytes | None], deque[int]] = {}
        self._last_of_key: dict[bytes | None, int] = {}
        self._forgotten = 0
        self._bytes_ahead = 0
        self._fetch_offset = start
        self._ended = False
        self._trimmed = False
        self._removed: list[int] = []
        self._passed = 0
        self._first_found: int | None = None
        self._skipped: dict[bytes | None, list[int]] = {}

    @property
    def source_next(self) -> int:
        """Source offset after the last copied record."""
        if self._next is not None:
            return self._next
        # Each copied record took an offset of the source, so at least so many are passed.
        return self._start + self._passed

    @property
    def source_epoch(self) -> int:
        """Leader epoch of the source before :attr:`source_next`, -1 if not known."""
        return self._epoch

    async def match(self, batch: BatchHeader, wanted_offset: int) -> list[Run]:
        """Advance over the source records that a target batch holds, and say where they stand.

        Args:
            batch: of ours, in target order.
            wanted_offset: target offset at which the walk begins.

        Raises:
            IntegrityError: the batch holds something that the source never held.
        """
        with_time = not batch.has_log_append_time
        aligned = self._at == len(self._records) and batch.base_offset >= wanted_offset
        if aligned and (self._outgoing or await self._fetch()):
            outgoing = self._outgoing[0]
            if _same_bytes(outgoing.view, batch.view, with_time=with_time):
                self._outgoing.popleft()
                runs = self._found(outgoing.stretches[0][0])
                self._next, self._epoch = outgoing.source_next, outgoing.leader_epoch
                return [*runs, *outgoing.runs(batch.base_offset)]
        runs = []
        for copied in decode(batch, wanted_offset):
            offset = await self._find(copied, with_time=with_time)
            if offset is None:
                self._accept_removed(copied)
                continue
            runs += self._found(offset)
            runs.append(Run(offset, copied.offset, 1))
            self._skipped.pop(copied.key, None)
            self._next, self._epoch = offset + 1, -1
        return runs

    def notes(self) -> list[str]:
        """Say what is strange about the two logs."""
        notes = []
        keyless = self._skipped.pop(None, [])
        missing = sorted(keyless + [o for offsets in self._skipped.values() for o in offsets])
        if missing:
            notes.append(
                f"{len(missing)} records at source offsets {missing[0]} to {missing[-1]} are not "
                "on the target, which holds later ones: refused, filtered or deleted"
            )
        if self._former:
            notes.append(
                f"{len(self._former)} records at target offsets {self._former[0]} to "
                f"{self._former[-1]} are of a topic that had the name before, or gone from the "
                "source: not in the map"
            )
        if self._removed:
            notes.append(
                f"{len(self._removed)} records at target offsets {self._removed[0]} to "
                f"{self._removed[-1]} are gone from the source: not in the map"
            )
        return notes

    def _found(self, offset: int) -> list[Run]:
        """Note the first record found; what stands before it may be clear now."""
        if self._first_found is not None:
            return []
        self._first_found = offset
        removed, dense = self._removed, len(self._removed) == offset - self._start
        if not (self._trimmed and removed and dense):
            return []
        # As many as there were source offsets: then each of them was a record, and was copied.
        self._removed = []
        return [Run(self._start + index, target, 1) for index, target in enumerate(removed)]

    async def _find(self, copied: Record, *, with_time: bool) -> int | None:
        """Return the source offset of a copied record, and step behind it."""
        content = copied.key, copied.value
        tried = self._forgotten + self._at
        while True:
            for place in self._places.get(content, ()):
                offset, record = self._records[place - self._forgotten]
                if place >= tried and self._comparison.same(record, copied, with_time=with_time):
                    self._step_to(place - self._forgotten)
                    return offset
            tried = self._forgotten + len(self._records)
            if self._bytes_ahead >= _LOOK_AHEAD_BYTES or not await self._decode_more():
                return None

    def _step_to(self, index: int) -> None:
        """Pass the records before one that was found, and that one."""
        transform = self._comparison.transform
        for passed, skipped in self._records[self._at : index]:
            if transform is None or not transform.drops(skipped):
                self._skipped.setdefault(skipped.key, []).append(passed)
        self._bytes_ahead -= sum(_size(r) for _, r in self._records[self._at : index + 1])
        self._at = index + 1
        if self._at > _FORGET_RECORDS:
            for _, record in self._records[: self._at]:
                places = self._places[record.key, record.value]
                places.popleft()
                if not places:
                    del self._places[record.key, record.value]
            del self._records[: self._at]
            self._forgotten += self._at
            self._at = 0

    def _accept_removed(self, copied: Record) -> None:
        if self._fresh and self._first_found is None:
            self._former.append(copied.offset)
            return
        compacted = copied.key is not None and (
            copied.value is None
            or self._last_of_key.get(copied.key, -1) >= self._forgotten + self._at
        )
        before_the_first = self._trimmed and self._first_found is None
        if not (compacted or before_the_first or self._comparison.accepts_loss):
            raise IntegrityError(
                f"{self._reader.partition}: target offset {copied.offset} holds a record of ours "
                f"that the source does not hold from offset {self.source_next} on: position "
                "undecidable, compare with 'srm verify'; data.loss.policy=continue copies on"
            )
        self._removed.append(copied.offset)
        # What was compacted has passed an offset; what was truncated has given its own back.
        if (compacted or before_the_first) and not self._truncated:
            self._passed += 1

    async def _decode_more(self) -> bool:
        if not self._outgoing and not await self._fetch():
            return False
        outgoing = self._outgoing.popleft()
        [header] = batches(outgoing.view)
        for offset, record in zip(outgoing.offsets(), decode(header), strict=True):
            place = self._forgotten + len(self._records)
            self._records.append((offset, record))
            self._places.setdefault((record.key, record.value), deque()).append(place)
            self._last_of_key[record.key] = place
            self._bytes_ahead += _size(record)
        return True

    async def _fetch(self) -> bool:
        """Fetch until there is something to compare; False at the end of the source.

        That end is behind all that was copied, so it is asked for once: it takes a long poll.
        """
        while not self._outgoing:
            if self._ended:
                return False
            try:
                fetched, owner = await self._reader.fetch(self._fetch_offset)
            except OutOfRangeError as error:
                if error.log_start <= self._fetch_offset:
                    self._ended = True  # truncated
                    continue
                self._trimmed = True
                self._fetch_offset = error.log_start
                continue
            before = self._fetch_offset
            committed = self._reader.read_committed
            for outgoing in batches_to_send(fetched, before, owner, read_committed=committed):
                if isinstance(outgoing, BatchToSend):
                    self._outgoing.append(outgoing)
                self._fetch_offset = outgoing.source_next
            end = fetched.last_stable_offset if committed else fetched.high_watermark
            self._ended = self._fetch_offset == before and before >= end
        return True


def _size(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"") + _RECORD_BYTES


def _same_bytes(ours: memoryview, theirs: memoryview, *, with_time: bool) -> bool:
    return (
        len(ours) == len(theirs)
        and (not with_time or ours[_TIMESTAMPS] == theirs[_TIMESTAMPS])
        and bytes(ours[HEADER_SIZE:]) == bytes(theirs[HEADER_SIZE:])
    )
