"""The source's side of the resume walk: waiting batches, and records decoded ahead.

A decoded record is kept as numbers in arrays: offset, time, and 64-bit hashes of content and key.
It takes the same memory whatever its size, so the limit counts records.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from srm.config.model import FlowConfig
from srm.domain.names.record_headers import Transform
from srm.domain.offset_map.runs import UNKNOWN_LINEAGE, Lineage
from srm.replication.batches.batch import (
    AbortedTransactions,
    BatchHeader,
    batches,
    content_hash,
    verify,
)
from srm.replication.batches.records import LoopShare, first_record, records_of, stretches
from srm.replication.log_reader import WAIT_MS, LogReader, OutOfRangeError
from srm.replication.ports import DecodedRecord

RECORD_BYTES: Final = 320
"""Maximum memory of an opened record, including both indexes."""
LOOK_AHEAD_RECORDS: Final = (64 << 20) // RECORD_BYTES
_FORGET_RECORDS: Final = 4096
_NONE: Final = -1
_Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Settings for the comparison of records.

    ``added_headers``: names of headers that srm adds, which are not compared. ``accepts_loss``:
    data.loss.policy=continue. ``transform``: the records it drops need not be on the target.
    ``left_out``: ranges of source offsets, recorded as lost, that need not be on the target.
    ``is_shared``: others write to the target, too; ``joins``: flows from other clusters do.
    """

    added_headers: Collection[str] = ()
    accepts_loss: bool = False
    transform: Transform | None = None
    left_out: _Ranges = ()
    is_shared: bool = False
    joins: bool = False

    @classmethod
    def of(
        cls, config: FlowConfig, topic: str, transform: Transform | None, left_out: _Ranges
    ) -> Comparison:
        accepts_loss = config.data_loss_policy == "continue"
        is_shared, joins = config.shares(topic), config.joins(topic)
        return cls(config.records.target_only, accepts_loss, transform, left_out, is_shared, joins)

    def is_of_another(self, claimed: BatchHeader) -> bool | None:
        """Return whether a flow from another cluster wrote a batch of the target under a claim."""
        if not self.joins or self.transform is None:
            return False
        if not claimed.record_count:
            return None
        return self.transform.is_of_another(first_record(claimed))

    def content(self, record: DecodedRecord) -> int:
        """Hash the fields that have to be equal on both sides, except the time."""
        added = self.added_headers
        headers = (h for h in record.headers if h[0] not in added)
        parts = (part for name, value in headers for part in (name.encode(), value))
        return content_hash(record.key, record.value, *parts)

    @property
    def may_lack_some(self) -> bool:
        return bool(self.left_out or (self.transform and self.transform.drops_some))

    def may_lack(self, record: DecodedRecord) -> bool:
        if self.transform is not None and self.transform.drops(record):
            return True
        return any(first <= record.offset < end for first, end in self.left_out)


@dataclass(eq=False)
class SourceAhead:
    """Records of the source by index, counted from the first one opened; old ones are forgotten.

    ``trimmed``: the log begins after the offset at which reading began, at ``log_start``. ``end``
    is the log's end, once ``ended``; ``lineage`` that of the log up to the last batch that was
    read.
    """

    reader: LogReader
    start: int
    comparison: Comparison
    lineage: Lineage = UNKNOWN_LINEAGE
    turns: LoopShare = field(default_factory=LoopShare)
    ended: bool = False
    trimmed: bool = False
    log_start: int = 0
    end: int = 0
    first: int = 0
    _knows_its_end: bool = False

    def __post_init__(self) -> None:
        self._waiting: deque[BatchHeader] = deque()
        self._fetch_offset = self.start
        self._offsets = array("q")
        self._contents = array("q")
        self._times = array("q")
        self._keys = array("q")
        self._needed = array("q")  # records before this one that the target has to hold
        self._kinds = bytearray()
        self._needed_in_all = 0
        self._same: array[int] | None = None
        self._first_same: dict[int, int] = {}
        self._last_same: dict[int, int] = {}
        self._last_of_key: dict[int, int] | None = None

    @property
    def opened_end(self) -> int:
        return self.first + len(self._offsets)

    # ----- reading

    async def batch_ahead(self, index: int = 0) -> BatchHeader | None:
        """Return the next unopened batch, or a later one; None at the end."""
        while index >= len(self._waiting):
            if not await self._fetch():
                return None
        return self._waiting[index]

    def pass_batches(self, count: int) -> None:
        for _ in range(count):
            self._waiting.popleft()

    async def open_more(self) -> bool:
        """Open the next batch; False at the end of the source, or of what may be kept."""
        if len(self._offsets) >= LOOK_AHEAD_RECORDS or (batch := await self.batch_ahead()) is None:
            return False
        self._waiting.popleft()
        verify(batch)
        async for piece in records_of(batch, self.turns, self.start):
            self._keep(piece)
        return True

    async def open_to(self, index: int) -> bool:
        """Open up to a record; False where there is none, or where no more may be kept."""
        while index >= self.opened_end:
            if not await self.open_more():
                return False
        return True

    async def open_until(self, offset: int) -> None:
        while not self._offsets or self._offsets[-1] < offset:
            if not await self.open_more():
                return

    def _keep(self, records: Sequence[DecodedRecord]) -> None:
        comparison = self.comparison
        content, lenient = comparison.content, comparison.may_lack_some
        first = self.opened_end
        self._offsets.extend([record.offset for record in records])
        self._times.extend([record.timestamp for record in records])
        self._contents.extend([content(record) for record in records])
        self._keys.extend([content_hash(record.key) for record in records])
        for record in records:
            kind = (record.key is not None) | (record.value is None) << 1
            if lenient and comparison.may_lack(record):
                kind |= 4
            self._kinds.append(kind)
            self._needed.append(self._needed_in_all)
            self._needed_in_all += kind < 4
        self._index_contents(first, self.opened_end)
        self._index_keys(first, self.opened_end)

    async def _fetch(self) -> bool:
        """Fetch until there is more to compare; False at the end of the source."""
        wait_ms, before_all = 0, len(self._waiting)
        while len(self._waiting) == before_all:
            if self.ended:
                return False
            try:
                fetched = await self.reader.fetch(self._fetch_offset, wait_ms=wait_ms)
            except OutOfRangeError as error:
                if error.log_start <= self._fetch_offset:
                    self.ended = True  # truncated
                    continue
                self.trimmed, self.lineage = True, UNKNOWN_LINEAGE
                self._fetch_offset = self.log_start = error.log_start
                continue
            before = self._fetch_offset
            committed = self.reader.read_committed
            aborted = AbortedTransactions(fetched.aborted if committed else ())
            for batch in batches(fetched.records):
                self.lineage = self.lineage.with_epoch(batch.leader_epoch, self._fetch_offset)
                dropped = aborted.drops(batch) or batch.is_control or not batch.record_count
                if not dropped and batch.last_offset >= before:
                    self._waiting.append(batch)
                self._fetch_offset = max(before, batch.last_offset + 1)
            self.end = fetched.last_stable_offset if committed else fetched.high_watermark
            is_empty, is_at_end = self._fetch_offset == before, before >= self.end
            wait_ms = WAIT_MS if is_empty and not is_at_end else 0
            if is_empty and is_at_end:
                self.ended = self._knows_its_end
                if not self.ended:
                    await self.reader.wire.log_range(self.reader.partition)
                    self._knows_its_end = True
        return True

    # ----- what was opened

    def offset(self, index: int) -> int:
        return self._offsets[index - self.first]

    def needed(self, begin: int, end: int) -> int:
        """Count the records in a range of indexes that the target has to hold."""
        return self._needed_before(end) - self._needed_before(begin)

    def _needed_before(self, index: int) -> int:
        at = index - self.first
        return self._needed[at] if at < len(self._needed) else self._needed_in_all

    def next_needed(self, index: int, skip: int) -> int:
        """Index of the first needed record after ``skip`` others, :attr:`opened` if not opened."""
        wanted = self._needed_before(index) + skip
        # The first index with more than ``wanted`` before it comes right after that record.
        after = bisect_left(self._needed, wanted + 1, index - self.first)
        if after == len(self._needed) and self._needed_in_all <= wanted:
            return self.opened_end
        return self.first + after - 1

    def needed_below(self, index: int, offset: int) -> int:
        place = bisect_left(self._offsets, offset, index - self.first)
        return self.needed(index, self.first + place)

    def is_needed(self, index: int) -> bool:
        return self._kinds[index - self.first] < 4

    def equals(self, index: int, content: int, time: int | None) -> bool:
        at = index - self.first
        return self._contents[at] == content and (time is None or self._times[at] == time)

    def count_equal(self, index: int, contents: array[int], times: array[int] | None) -> int:
        at = index - self.first
        count = _count_equal(self._contents[at : at + len(contents)], contents)
        return count if times is None else _count_equal(self._times[at : at + count], times)

    def stretches(self, index: int, count: int) -> list[tuple[int, int]]:
        """Group records in a row into (first offset, count) of consecutive ones."""
        at = index - self.first
        return stretches(self._offsets[at : at + count])

    def same_content(self, begin: int, end: int, content: int, most: int) -> list[int]:
        """Return the first ``most`` indexes with a content; only after :meth:`index_contents`."""
        found: list[int] = []
        if begin >= self.opened_end or self._same is None:
            return found
        here = self._contents[begin - self.first] == content
        index = begin if here else self._first_same.get(content, _NONE)
        while _NONE != index < end and len(found) < most:
            if index >= begin:
                found.append(index)
            index = self._same[index - self.first]
        return found

    def last_of_key(self, key: int) -> int:
        """Index of the last opened record of a key, -1 if none; after :meth:`index_keys`."""
        return (self._last_of_key or {}).get(key, _NONE)

    def owed_for(self, begin: int, end: int, free: int) -> set[int] | None:
        """Return the keys that prove the removal of the needed records in a range on the target."""
        owed = set()
        for at in range(begin - self.first, end - self.first):
            kind = self._kinds[at]
            if kind >= 4:
                continue
            if free:
                free -= 1
            elif not kind & 1:
                return None
            elif not kind & 2:
                owed.add(self._keys[at])
        return owed

    async def forget(self, index: int) -> None:
        while (count := min(index - self.first, 2 * _FORGET_RECORDS)) >= _FORGET_RECORDS:
            self._forget(count)
            await self.turns.give_way()

    def _forget(self, count: int) -> None:
        if self._same is not None:
            for at in range(count):
                content, following = self._contents[at], self._same[at]
                if following == _NONE:
                    del self._first_same[content], self._last_same[content]
                else:
                    self._first_same[content] = following
            del self._same[:count]
        if self._last_of_key is not None:
            for at in range(count):
                if self._last_of_key.get(self._keys[at]) == self.first + at:
                    del self._last_of_key[self._keys[at]]
        for numbers in (self._offsets, self._contents, self._times, self._keys, self._needed):
            del numbers[:count]
        del self._kinds[:count]
        self.first += count

    async def index_contents(self) -> None:
        if self._same is None:
            self._same = array("q")
            await self._index_opened(self._index_contents)

    async def index_keys(self) -> None:
        if self._last_of_key is None:
            self._last_of_key = {}
            await self._index_opened(self._index_keys)

    async def _index_opened(self, index: Callable[[int, int], None]) -> None:
        for first in range(self.first, self.opened_end, _FORGET_RECORDS):
            index(first, min(first + _FORGET_RECORDS, self.opened_end))
            await self.turns.give_way()

    def _index_contents(self, first: int, end: int) -> None:
        same, base = self._same, self.first
        if same is None:
            return
        for index in range(first, end):
            content = self._contents[index - base]
            before = self._last_same.get(content, _NONE)
            if before == _NONE:
                self._first_same[content] = index
            else:
                same[before - base] = index
            self._last_same[content] = index
            same.append(_NONE)

    def _index_keys(self, first: int, end: int) -> None:
        if self._last_of_key is not None:
            base = self.first
            for index in range(first, end):
                self._last_of_key[self._keys[index - base]] = index


def _count_equal(ours: array[int], theirs: array[int]) -> int:
    """Count the equal numbers at the beginning, as far as ``ours`` goes."""
    if ours == theirs[: len(ours)]:
        return len(ours)
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next((n for n, (our, their) in pairs if our != their), len(ours))
