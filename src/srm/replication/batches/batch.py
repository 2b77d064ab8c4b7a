"""Record batches as bytes: read the header, rewrite a batch for our producer without decoding it.

Layout of a version 2 batch (Kafka's DefaultRecordBatch)::

    0 baseOffset i64 | 8 batchLength i32 | 12 partitionLeaderEpoch i32 | 16 magic i8 | 17 crc u32
    21 attributes i16 | 23 lastOffsetDelta i32 | 27 baseTimestamp i64 | 35 maxTimestamp i64
    43 producerId i64 | 51 producerEpoch i16 | 53 baseSequence i32 | 57 recordCount i32 | 61 records

The CRC32C covers everything from the attributes on. That of a new header is derived from the old
one, so the target's broker detects a batch that was damaged in transit.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from srm.errors import IntegrityError
from srm.extras import MissingExtraError, library

try:
    from crc32c import crc32c
except ModuleNotFoundError:  # the base install: commands check a few batches
    from srm.extras import require
    from srm.replication.native.library import native_library

    def crc32c(data: bytes | memoryview, value: int = 0) -> int:
        """Compute it natively; only the data plane continues from another value."""
        library = native_library()
        if library is None or value:
            return int(require("crc32c").crc32c(data, value))
        return library.crc32c(memoryview(data))


HEADER_SIZE: Final = 61
MAX_SEQUENCE: Final = 2**31

_HEADER: Final = struct.Struct(">qiib4xhi8xqqh4xi")
PREFIX: Final = 12
"""Bytes that the length of a batch does not count."""
LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_ALL_ONES: Final = 0xFFFFFFFF
_COMPARE: Final = "compare the replicas of the partition on the source"
_ZEROS: Final = memoryview(bytes(1 << 20))
_ATTRIBUTES_AT: Final = 21
_PRODUCER_AT: Final = 43
_SEQUENCE_AT: Final = 53

_TINY_COUNT: Final = 8
_TINY_BYTES: Final = 8192

CODEC_BITS: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20

_OFFSET_AND_LENGTH: Final = struct.Struct(">qi")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_PRODUCER: Final = struct.Struct(">qhi")
INT32: Final = struct.Struct(">i")


class Path(Enum):
    """Treatment of a batch on its way to the target."""

    PASS = "pass"  # noqa: S105 - not a password
    """Sent unchanged; only the header is rewritten."""
    REBUILD = "rebuild"
    """Decoded and encoded again: for example, it begins before the wanted offset, or has holes."""
    DROP = "drop"
    """Contains nothing to copy: markers, or a batch emptied by compaction."""


class BatchHeader(NamedTuple):
    """The header of one batch, and its position in memory; a tuple, three times as fast to make."""

    view: memoryview
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    record_count: int

    @property
    def last_offset(self) -> int:
        """Offset of the last record, or of the last that was there before compaction."""
        return self.base_offset + self.last_offset_delta

    @property
    def is_dense(self) -> bool:
        """True if no offset is missing, which brokers require of produced batches."""
        return self.record_count == self.last_offset_delta + 1

    @property
    def is_tiny(self) -> bool:
        """True if sending the batch alone costs more than decoding and encoding its records."""
        return self.record_count <= _TINY_COUNT and len(self.view) <= _TINY_BYTES

    @property
    def is_control(self) -> bool:
        """True for a transaction marker."""
        return bool(self.attributes & _CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def has_log_append_time(self) -> bool:
        """True if the broker set the records' time (all have ``max_timestamp`` then)."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def base_sequence(self) -> int:
        (sequence,) = INT32.unpack_from(self.view, _SEQUENCE_AT)
        return int(sequence)

    @property
    def codec(self) -> int:
        """Number of the compression codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC_BITS

    def path(self, wanted_offset: int) -> Path:
        """Decide how the batch travels, given the first offset that is still to be copied."""
        if self.is_control or self.record_count == 0 or self.last_offset < wanted_offset:
            return Path.DROP
        if self.base_offset < wanted_offset or self.has_log_append_time:
            return Path.REBUILD
        return Path.PASS if self.is_dense else Path.REBUILD


def batches(records: memoryview) -> Iterator[BatchHeader]:
    """Cut fetched records at batch boundaries, without an incomplete last one.

    Message sets of older formats become batches. IntegrityError: unknown format, senseless counts,
    or offsets that go back.
    """
    at = behind = 0
    end = len(records)
    while end - at > _MAGIC_AT:
        if records[at + _MAGIC_AT] < 2:
            (_, length) = _OFFSET_AND_LENGTH.unpack_from(records, at)
            size = PREFIX + length
            if end - at < size:
                return
            for batch in batches(convert(records[at : at + size])):
                behind = batch.last_offset + 1
                yield batch
            at += size
            continue
        if end - at < HEADER_SIZE:
            return
        header = _HEADER.unpack_from(records, at)
        base, length, epoch, magic, bits, delta, latest, producer, its_epoch, count = header
        if magic != 2 or length < HEADER_SIZE - PREFIX:
            raise IntegrityError(
                f"batch at offset {base} has format {magic} and length {length}, which "
                "srm does not know"
            )
        size = PREFIX + length
        if end - at < size:
            return
        if count < 0 or delta < 0:
            raise IntegrityError(
                f"batch at offset {base} claims {count} records, the last one {delta} "
                f"offsets after the first"
            )
        if base < behind:
            raise disorder(base)
        behind = base + delta + 1
        view = records[at : at + size]
        yield BatchHeader(view, base, epoch, bits, delta, latest, producer, its_epoch, count)
        at += size


def disorder(offset: int) -> IntegrityError:
    return IntegrityError(
        f"batch at offset {offset} follows batches with higher offsets: one of them is damaged",
        _COMPARE,
    )


def is_valid(view: memoryview) -> bool:
    """Return whether the checksum of a batch is correct."""
    (checksum,) = _CRC.unpack_from(view, _CRC_AT)
    return bool(crc32c(view[_CRC_FROM:]) == checksum)


def verify(batch: BatchHeader) -> None:
    """Check the checksum of a batch that is not sent on as it is: damage must not become valid."""
    if not is_valid(batch.view):
        raise IntegrityError(
            f"records at offsets {batch.base_offset} to {batch.last_offset} are damaged: their "
            "checksum is wrong",
            _COMPARE,
        )


def seal(view: memoryview) -> None:
    _CRC.pack_into(view, _CRC_AT, crc32c(view[_CRC_FROM:]))


def header_checksum(view: memoryview) -> int:
    """Return the checksum of what the batch's own covers of its header."""
    return int(crc32c(view[_CRC_FROM:HEADER_SIZE]))


def correct_checksum(view: memoryview, before: int) -> None:
    """Make the checksum fit again after a change of the header alone, if it did before.

    A CRC is linear: it changes by the change of the header's (``before``), carried over as many
    zero bytes as there are records.
    """
    # The library inverts the register before and after, as CRC32C says; this has to be without.
    change = before ^ header_checksum(view) ^ _ALL_ONES
    left = len(view) - HEADER_SIZE
    while left > 0:
        change = crc32c(_ZEROS[:left], change)
        left -= len(_ZEROS)
    (checksum,) = _CRC.unpack_from(view, _CRC_AT)
    _CRC.pack_into(view, _CRC_AT, checksum ^ change ^ _ALL_ONES)


def rewrite(view: memoryview, producer_id: int, producer_epoch: int, sequence: int) -> None:
    """Make a batch ours, in place: base offset 0, our producer, no transaction."""
    before = header_checksum(view)
    _OFFSET_AND_LENGTH.pack_into(view, 0, 0, len(view) - PREFIX)
    (attributes,) = _ATTRIBUTES.unpack_from(view, _ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(view, _ATTRIBUTES_AT, attributes & CODEC_BITS)
    _PRODUCER.pack_into(view, _PRODUCER_AT, producer_id, producer_epoch, sequence)
    correct_checksum(view, before)


def next_sequence(sequence: int, count: int) -> int:
    """Sequence number after ``count`` records; wraps to 0 after 2^31 - 1 (DefaultRecordBatch)."""
    return (sequence + count) % MAX_SEQUENCE


@dataclass(slots=True)
class BatchToSend:
    """One batch on its way: passed through, or rebuilt from one or several (``is_merged``).

    ``stretches`` are (first source offset, count) of consecutive records, in order. ``source_next``
    is the source offset after the original batches and what is dropped between them,
    ``leader_epoch`` that of the batch before. ``owner`` keeps the memory of ``view``.
    """

    view: memoryview
    count: int
    stretches: list[tuple[int, int]]
    source_next: int
    leader_epoch: int
    max_timestamp: int
    owner: object
    is_merged: bool = False

    def offsets(self) -> list[int]:
        return [first + index for first, count in self.stretches for index in range(count)]


class Dropped(NamedTuple):
    """Nothing before ``source_next`` is left to send; the epoch is as in :class:`BatchToSend`."""

    source_next: int
    leader_epoch: int


_ABORT: Final = 0
_CONTROL_KEY: Final = struct.Struct(">hh")


def is_abort_marker(batch: BatchHeader) -> bool:
    """Return whether a control batch holds an ABORT marker; the log cleaner may empty one."""
    if not batch.record_count:
        return False
    at = _after_varint(batch.view, HEADER_SIZE)  # length of the record
    at += 1  # attributes
    for _ in ("timestamp delta", "offset delta", "key length"):
        at = _after_varint(batch.view, at)
    _, kind = _CONTROL_KEY.unpack_from(batch.view, at)
    return int(kind) == _ABORT


def _after_varint(view: memoryview, at: int) -> int:
    while view[at] & 0x80:
        at += 1
    return at + 1


class AbortedTransactions:
    """Filter for the batches of aborted transactions, as in Kafka's consumer (CompletedFetch)."""

    def __init__(self, aborted: tuple[tuple[int, int], ...]) -> None:
        self._to_come = deque(sorted(aborted, key=lambda transaction: transaction[1]))
        self._open: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._to_come or self._open)

    def drops(self, batch: BatchHeader) -> bool:
        """Return whether the batch is aborted; call once for each batch, in offset order."""
        while self._to_come and self._to_come[0][1] <= batch.last_offset:
            self._open.add(self._to_come.popleft()[0])
        if batch.producer_id not in self._open:
            return False
        if batch.is_control:
            if is_abort_marker(batch):
                self._open.discard(batch.producer_id)
            return False
        return batch.is_transactional


_KEYED: Final = blake2b(digest_size=8, key=os.urandom(16))
_INT64: Final = struct.Struct(">q")


def content_hash(*parts: bytes | memoryview | None) -> int:
    """Hash some parts to 64 bits, each with its length, under a key of this process."""
    state = _KEYED.copy()
    for part in parts:
        state.update(INT32.pack(-1 if part is None else len(part)))
        if part:
            state.update(part)
    (hashed,) = _INT64.unpack(state.digest())
    return int(hashed)


default_records = library("aiokafka.record.default_records")
legacy_records = library("aiokafka.record.legacy_records")

NO_LIMIT: Final = 2**31 - 1
_NO_TIMESTAMP: Final = -1
_OLD_ATTRIBUTES_AT: Final = 17
TIMESTAMPS: Final = struct.Struct(">qq")
TIMESTAMPS_AT: Final = 27


def batch_builder(codec: int) -> Any:
    """Return aiokafka's builder of a version 2 batch, without a producer and of any size."""
    return default_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=NO_LIMIT,
    )


def convert(message_set: memoryview) -> memoryview:
    """Return a message set of a format before Kafka 0.11 (magic 0 and 1) as a version 2 batch.

    Brokers give out old segments unchanged (Fetch 10 and later), but take only version 2 batches.
    """
    (offset,) = _INT64.unpack_from(message_set)
    try:
        legacy = legacy_records.LegacyRecordBatch(bytes(message_set), message_set[_MAGIC_AT])
        valid = legacy.validate_crc()
        records = list(legacy) if valid else []
    except MissingExtraError:
        raise
    except Exception as error:
        raise IntegrityError(f"message at offset {offset} cannot be decoded: {error!r}") from error
    if not records:
        raise IntegrityError(f"message at offset {offset} is damaged: its checksum is wrong")
    builder = batch_builder(message_set[_OLD_ATTRIBUTES_AT] & CODEC_BITS)
    times = [_NO_TIMESTAMP if r.timestamp is None else r.timestamp for r in records]
    first = records[0].offset
    for record, time in zip(records, times, strict=True):
        builder.append(record.offset - first, time - times[0], record.key, record.value, [])
    batch = memoryview(builder.build())
    _INT64.pack_into(batch, 0, first)
    TIMESTAMPS.pack_into(batch, TIMESTAMPS_AT, times[0], max(times))
    seal(batch)
    return batch
