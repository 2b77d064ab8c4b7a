"""One partition's log as its leader has it, with the producer state that its batches make.

Rules as in Kafka's UnifiedLog, ProducerStateManager and LeaderEpochFileCache.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from srm.replication.batches.batch import batches, seal, verify
from srm.replication.batches.records import decode
from srm.replication.ports import DecodedRecord, EpochEnd, Produced

NONE: Final = 0
OUT_OF_RANGE: Final = 1
CORRUPT: Final = 2
TOO_LARGE: Final = 10
OUT_OF_ORDER: Final = 45
INVALID_PRODUCER_EPOCH: Final = 47

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_COMMIT: Final = struct.pack(">hh", 0, 1)
_NO_EPOCH: Final = -1
_REMEMBERED: Final = 5
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_LOG_APPEND_TIME: Final = 0x08


@dataclass(slots=True, eq=False)
class Batch:
    """A stored batch; ``aborted`` is set once its transaction was aborted."""

    base: int
    last: int
    epoch: int
    view: bytes
    producer_id: int
    producer_epoch: int
    sequence: int
    count: int
    attributes: int
    time_s: float
    aborted: bool = False
    source: object = None

    @property
    def is_control(self) -> bool:
        """True for a transaction marker."""
        return bool(self.attributes & _CONTROL)

    @property
    def is_transactional(self) -> bool:
        """True if it belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_commit(self) -> bool:
        """True for the marker of a committed transaction."""
        return self.is_control and self.records()[0].key == _COMMIT

    def records(self) -> list[DecodedRecord]:
        """Decode its records."""
        [header] = batches(memoryview(self.view))
        return decode(header)


@dataclass(slots=True)
class _Producer:
    epoch: int = _NO_EPOCH
    last_sequence: int = -1
    time_s: float = 0.0
    first_open: int | None = None
    recent: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))


@dataclass(frozen=True, slots=True)
class LogFork:
    """Log at some time: its batches, which of them are aborted, and aborted transactions."""

    history: list[Batch]
    undone: list[bool]
    aborted: list[tuple[int, int, int]]


class SimulatedLog:
    """Batches by offset, from ``start`` to ``end``; consumers see what is below the high watermark.

    ``history`` are all batches ever appended that no election has cut off, whether they are still
    there or not; ``cut`` are the others. ``cut_at`` is where committed ones were cut off.
    """

    def __init__(self, *, log_append_time: bool, max_message_bytes: int, expiry_s: float) -> None:
        self.batches: list[Batch] = []
        self._lasts: list[int] = []
        self.history: list[Batch] = []
        self.cut: list[Batch] = []
        self.cut_at: int | None = None
        self.start = 0
        self.end = 0
        self.high_watermark = 0
        self.epochs: list[tuple[int, int]] = []
        self.aborted: list[tuple[int, int, int]] = []
        self.max_message_bytes = max_message_bytes
        self.compacted: dict[int, float] = {}
        self.trimmed: list[tuple[float, int]] = []
        self._log_append_time = log_append_time
        self._expiry_s = expiry_s
        self._producers: dict[int, _Producer] = {}
        self._undecided: list[tuple[int, int]] = []  # first offset and marker's, above the HW

    # ----- appending

    def begin_epoch(self, epoch: int) -> None:
        """Note that a leader begins; an epoch without records is forgotten."""
        self._begin(epoch, self.end)

    def _begin(self, epoch: int, start: int) -> None:
        self.epochs = [(e, at) for e, at in self.epochs if at < start] + [(epoch, start)]

    @property
    def epoch(self) -> int:
        """Epoch of the leader."""
        return self.epochs[-1][0]

    def append(self, data: bytes, now_s: float, now_ms: int) -> Produced:
        """Take one batch of a client, or say why not."""
        (_, _, _, _, _, attributes, delta, _, _, pid, epoch, sequence, count) = _HEADER.unpack_from(
            data
        )
        if len(data) > self.max_message_bytes:
            return Produced(TOO_LARGE, -1)
        [header] = batches(memoryview(data))
        try:
            verify(header)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it
            return Produced(CORRUPT, -1, str(error))
        if pid >= 0:
            producer = self._producer(pid, now_s)
            duplicate = _duplicate(producer, epoch, sequence, sequence + count - 1)
            if duplicate is not None:
                return Produced(NONE, duplicate)
            refusal = _check(producer, epoch, sequence)
            if refusal:
                return Produced(refusal, -1)
        if self._log_append_time:
            data = _with_append_time(data, now_ms)
            attributes |= _LOG_APPEND_TIME
        base = self.end
        stored = bytearray(data)
        struct.pack_into(">q", stored, 0, base)
        struct.pack_into(">i", stored, 12, self.epoch)
        self._add(
            Batch(
                base=base,
                last=base + delta,
                epoch=self.epoch,
                view=bytes(stored),
                producer_id=pid,
                producer_epoch=epoch,
                sequence=sequence,
                count=count,
                attributes=attributes,
                time_s=now_s,
            )
        )
        return Produced(NONE, base)

    def next_sequence(self, pid: int) -> int:
        """Return the sequence number that is due from a producer."""
        producer = self._producers.get(pid)
        return 0 if producer is None else (producer.last_sequence + 1) % 2**31

    def open_transactions(self) -> dict[int, int]:
        """Return the producers that have a transaction open here, with its first offset."""
        producers = self._producers.items()
        return {pid: p.first_open for pid, p in producers if p.first_open is not None}

    def lost_markers(self) -> list[tuple[int, Batch]]:
        """Return the markers that were cut off of transactions that are open since, by producer.

        A transaction was ended by the first marker of its producer that was written after it began.
        """
        found = []
        for pid, first in self.open_transactions().items():
            began = next(batch for batch in self.history if batch.base == first)
            later = (
                batch
                for batch in self.cut
                if batch.is_control and batch.producer_id == pid and batch.base > first
                if batch.time_s >= began.time_s
            )
            if (marker := min(later, key=lambda batch: batch.time_s, default=None)) is not None:
                found.append((pid, marker))
        return found

    def append_marker(
        self, pid: int, epoch: int, now_s: float, now_ms: int, *, commit: bool
    ) -> bool:
        """End a producer's transaction here; False for the marker of an older owner."""
        producer = self._producer(pid, now_s)
        if epoch < producer.epoch:
            return False
        view = _marker(self.end, pid, epoch, self.epoch, now_ms, commit=commit)
        first, end = producer.first_open, self.end
        if first is not None:
            for batch in self.history:
                if batch.producer_id == pid and batch.base >= first and not batch.is_control:
                    batch.aborted = not commit
            if not commit:
                self.aborted.append((pid, first, end))
            self._undecided.append((first, end))
        self._add(Batch(end, end, self.epoch, view, pid, epoch, -1, 1, 0x30, now_s))
        return True

    def _add(self, batch: Batch) -> None:
        self.batches.append(batch)
        self._lasts.append(batch.last)
        self.history.append(batch)
        self.end = batch.last + 1
        self._replay(batch)

    def _producer(self, pid: int, now_s: float) -> _Producer:
        producer = self._producers.get(pid)
        if producer is None:
            return _Producer()
        if producer.first_open is None and now_s - producer.time_s >= self._expiry_s:
            del self._producers[pid]
            return _Producer()
        return producer

    def _replay(self, batch: Batch) -> None:
        if batch.producer_id < 0:
            return
        producer = self._producers.get(batch.producer_id)
        if producer is None or batch.time_s - producer.time_s >= self._expiry_s:
            producer = self._producers[batch.producer_id] = _Producer()
        if batch.producer_epoch != producer.epoch:
            producer.epoch = batch.producer_epoch
            producer.last_sequence = -1
            producer.recent.clear()
        producer.time_s = batch.time_s
        if batch.is_control:
            producer.first_open = None
            return
        producer.last_sequence = (batch.sequence + batch.last - batch.base) % 2**31
        producer.recent.append((batch.sequence, producer.last_sequence, batch.base))
        if batch.is_transactional and producer.first_open is None:
            producer.first_open = batch.base

    # ----- reading

    @property
    def last_stable_offset(self) -> int:
        """Offset up to which all transactions are decided, for readers of committed records."""
        high = self.high_watermark
        opened = [p.first_open for p in self._producers.values() if p.first_open is not None]
        self._undecided = [u for u in self._undecided if u[1] >= high]
        return min([high, *opened, *(first for first, _ in self._undecided)])

    def read(self, offset: int, upto: int, max_bytes: int) -> bytearray:
        """Return whole batches from the one that holds an offset, at least one."""
        out = bytearray()
        index = bisect_left(self._lasts, offset)
        for batch in self.batches[index:]:
            if batch.base >= upto or (out and len(out) + len(batch.view) > max_bytes):
                break
            out += batch.view
        return out

    def offset_at(self, time_ms: int) -> int:
        """Return the first offset whose record has a time or a later one, else the end."""
        for batch in self.batches:
            if batch.last < self.start or not batch.count:
                continue
            for record in batch.records():
                if record.timestamp >= time_ms and record.offset >= self.start:
                    return min(self.high_watermark, record.offset)
        return self.high_watermark

    def aborted_between(self, offset: int, upto: int) -> tuple[tuple[int, int], ...]:
        """Return the aborted transactions that matter to the reader of a range."""
        return tuple(
            (pid, first) for pid, first, last in self.aborted if last >= offset and first < upto
        )

    def epoch_end(self, epoch: int) -> EpochEnd:
        """Answer OffsetForLeaderEpoch."""
        if epoch == self.epoch:
            return EpochEnd(epoch, self.end)
        known = [found for found, _ in self.epochs]
        index = bisect_right(known, epoch)
        if epoch < 0 or index == len(known):
            return EpochEnd(-1, -1)
        return EpochEnd(known[index - 1] if index else epoch, self.epochs[index][1])

    # ----- losing

    def truncate(self, offset: int, now_s: float) -> None:
        """Cut everything off from an offset on, as a new leader that never had it does."""
        kept = bisect_right([b.base for b in self.history], offset - 1)
        self.cut += self.history[kept:]
        if offset < self.high_watermark:
            self.cut_at = min(offset, offset if self.cut_at is None else self.cut_at)
        del self.history[kept:]
        first = bisect_right([b.base for b in self.batches], offset - 1)
        del self.batches[first:]
        del self._lasts[first:]
        self.end = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.start = min(self.start, offset)
        self.epochs = [(e, at) for e, at in self.epochs if at < offset or e == self.epochs[0][0]]
        self.aborted = [a for a in self.aborted if a[2] < offset]
        self._undecided = [u for u in self._undecided if u[1] < offset]
        self._producers.clear()
        for batch in self.history:
            self._replay(batch)
        self._producers = {
            pid: p
            for pid, p in self._producers.items()
            if p.first_open is not None or now_s - p.time_s < self._expiry_s
        }

    def fork(self) -> LogFork:
        """Return what a replica holds that is about to fall behind."""
        undone = [batch.aborted for batch in self.history]
        return LogFork(list(self.history), undone, list(self.aborted))

    def rejoin(self, fork: LogFork, now_s: float) -> None:
        """Restore the log of a replica that leads now; the log may have been cut further since."""
        both = list(zip(self.history, fork.history, strict=False))
        count = next((n for n, (a, b) in enumerate(both) if a is not b), len(both))
        at = self.history[count - 1].last + 1 if count else 0
        self.truncate(at, now_s)
        for batch in fork.history[count:]:
            if batch.epoch != self.epoch:
                self._begin(batch.epoch, self.end)
            self._add(batch)
        for batch, was_undone in zip(fork.history, fork.undone, strict=True):
            batch.aborted = was_undone
        self.aborted = list(fork.aborted)

    def trim(self, offset: int, now_s: float) -> None:
        """Drop the records before an offset: retention, or DeleteRecords."""
        if offset <= self.start:
            return
        self.start = min(offset, self.high_watermark)
        self.trimmed.append((now_s, self.start))
        known = [one for one in self.epochs if one[1] <= self.start]
        self.epochs = [(known[-1][0], self.start), *self.epochs[len(known) :]]
        first = bisect_left(self._lasts, self.start)
        del self.batches[:first]
        del self._lasts[:first]

    def compact(self, upto: int, now_s: float) -> None:
        """Keep the last record of each key below an offset; batches keep their offsets."""
        upto = min(upto, self.last_stable_offset)
        newest: dict[bytes | None, int] = {}
        for batch in self.batches:
            if batch.last < upto and not batch.is_control and not batch.aborted and batch.count:
                newest.update((record.key, record.offset) for record in batch.records())
        last_of = {batch.producer_id: batch for batch in self.history}
        kept: list[Batch] = []
        for batch in self.batches:
            if batch.last >= upto or batch.is_control or not batch.count:
                kept.append(batch)
                continue
            left = _clean(batch, newest, self.compacted, now_s)
            if left.count or last_of.get(batch.producer_id) is batch:
                kept.append(left)
        self.batches = kept
        self._lasts = [batch.last for batch in kept]


def _check(producer: _Producer, epoch: int, sequence: int) -> int:
    if epoch < producer.epoch:
        return INVALID_PRODUCER_EPOCH
    if epoch != producer.epoch:
        return OUT_OF_ORDER if sequence and producer.epoch != _NO_EPOCH else NONE
    return NONE if sequence == (producer.last_sequence + 1) % 2**31 else OUT_OF_ORDER


def _duplicate(producer: _Producer, epoch: int, first: int, last: int) -> int | None:
    if epoch == producer.epoch:
        for known_first, known_last, base in producer.recent:
            if (known_first, known_last) == (first, last % 2**31):
                return base
    return None


def _clean(
    batch: Batch, newest: dict[bytes | None, int], compacted: dict[int, float], now_s: float
) -> Batch:
    """Return a batch without the records that later ones of their keys supersede."""
    records = [] if batch.aborted else batch.records()
    left = [record for record in records if newest[record.key] == record.offset]
    if len(left) == batch.count:
        return batch
    for offset in {r.offset for r in batch.records()} - {r.offset for r in left}:
        compacted[offset] = now_s
    view = bytearray(_encode(left, batch) if left else batch.view[:61])
    struct.pack_into(">qi", view, 0, batch.base, len(view) - 12)
    struct.pack_into(">i", view, 12, batch.epoch)
    struct.pack_into(">hi", view, 21, batch.attributes, batch.last - batch.base)
    struct.pack_into(">qhii", view, 43, *_producer_of(batch), len(left))
    seal(memoryview(view))
    return replace(batch, view=bytes(view), count=len(left), source=None)


def _producer_of(batch: Batch) -> tuple[int, int, int]:
    return batch.producer_id, batch.producer_epoch, batch.sequence


def _encode(records: list[DecodedRecord], batch: Batch) -> bytes:
    builder = DefaultRecordBatchBuilder(
        2, batch.attributes & 7, int(batch.is_transactional), *_producer_of(batch), 2**31 - 1
    )
    for record in records:
        builder.append(
            record.offset - batch.base, record.timestamp, record.key, record.value, record.headers
        )
    return bytes(builder.build())


def _with_append_time(data: bytes, now_ms: int) -> bytes:
    view = bytearray(data)
    (attributes,) = struct.unpack_from(">h", view, 21)
    struct.pack_into(">h", view, 21, attributes | _LOG_APPEND_TIME)
    struct.pack_into(">q", view, 35, now_ms)
    seal(memoryview(view))
    return bytes(view)


def _marker(
    offset: int, pid: int, epoch: int, leader_epoch: int, now_ms: int, *, commit: bool
) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 1, pid, epoch, -1, 2**31 - 1)
    builder.append(0, now_ms, struct.pack(">hh", 0, int(commit)), bytes(6), [])
    view = builder.build()
    struct.pack_into(">q", view, 0, offset)
    struct.pack_into(">i", view, 12, leader_epoch)
    struct.pack_into(">h", view, 21, _TRANSACTIONAL | _CONTROL)
    struct.pack_into(">qhi", view, 43, pid, epoch, -1)
    seal(memoryview(view))
    return bytes(view)
