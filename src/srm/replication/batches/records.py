"""Records of batches: decode them whole or piece by piece, and encode them again.

Batches that cannot pass through unchanged are rebuilt: brokers accept only dense ones, so holes are
closed, and LogAppendTime becomes an explicit timestamp. aiokafka's native code takes 0.7 us a
record; the base install has none.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import islice
from typing import Final

from srm.clock import now_s
from srm.domain.names.record_headers import Header
from srm.errors import IntegrityError, SrmError
from srm.replication.batches.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    NO_LIMIT,
    TIMESTAMPS,
    TIMESTAMPS_AT,
    BatchHeader,
    BatchToSend,
    Dropped,
    batch_builder,
    batches,
    correct_checksum,
    header_checksum,
)
from srm.replication.batches.codecs import codec_of, decompress
from srm.replication.ports import DecodedRecord

_HEADER: Final = struct.Struct(">q13xh4xqq14xi")

Reader = Callable[[memoryview], Iterator[DecodedRecord]]


def records_in(batch: memoryview) -> Iterator[DecodedRecord]:
    """Yield the records of one batch; any exception where it cannot be decoded."""
    return _reader()(batch)


@cache
def _reader() -> Reader:
    try:
        from aiokafka.record.memory_records import MemoryRecords  # noqa: PLC0415 - if it is there
    except ModuleNotFoundError:
        return read_plainly

    def read_natively(batch: memoryview) -> Iterator[DecodedRecord]:
        # A generator: aiokafka's own iterator reads past its end when it is used once more.
        yield from MemoryRecords(bytes(batch)).next_batch() or ()

    return read_natively


def read_plainly(batch: memoryview) -> Iterator[DecodedRecord]:
    base, attributes, first_time, latest_time, count = _HEADER.unpack_from(batch)
    stamped = attributes & LOG_APPEND_TIME
    packed = batch[HEADER_SIZE:]
    data = decompress(codec_of(batch), packed) if codec_of(batch) else bytes(packed)
    at = 0
    for _ in range(count):
        size, at = _varint(data, at)
        end = at + size
        time, at = _varint(data, at + 1)
        delta, at = _varint(data, at)
        key, at = _field(data, at)
        value, at = _field(data, at)
        n_headers, at = _varint(data, at)
        headers = []
        for _ in range(n_headers):
            name, at = _field(data, at)
            header, at = _field(data, at)
            headers.append(((name or b"").decode(), header))
        if at != end or end > len(data):
            raise ValueError(f"the record at offset {base + delta} has a wrong length")
        timestamp = latest_time if stamped else first_time + time
        yield DecodedRecord(base + delta, timestamp, key, value, headers)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _field(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


_NO_END: Final = Dropped(0, -1)


HeadersOf = Callable[[DecodedRecord], list[Header]]


def decode(batch: BatchHeader, wanted_offset: int = 0) -> list[DecodedRecord]:
    """Decode records from ``wanted_offset`` on; with LogAppendTime they have the batch's time."""
    with _decoding(batch):
        records = list(records_in(batch.view))
    if records and records[0].offset < wanted_offset:
        return [record for record in records if record.offset >= wanted_offset]
    return records


def encode(
    records: Sequence[DecodedRecord],
    codec: int,
    end: Dropped = _NO_END,
    *,
    limit: int = NO_LIMIT,
    headers_of: HeadersOf | None = None,
) -> Iterator[BatchToSend]:
    """Encode records as dense batches of at most ``limit`` bytes, or of one record each.

    ``end``: where the source is passed with them. ``headers_of``: the headers that a record gets.
    """
    built = _build(records, codec, end, headers_of)
    count = len(records)
    if len(built.view) <= limit or count == 1:
        yield built
        return
    step = max(1, count // -(-len(built.view) // limit))
    for at in range(0, count, step):
        yield from encode(records[at : at + step], codec, end, limit=limit, headers_of=headers_of)


def _build(
    records: Sequence[DecodedRecord], codec: int, end: Dropped, headers_of: HeadersOf | None
) -> BatchToSend:
    builder = batch_builder(codec)
    append = builder.append
    # The builder takes a first timestamp of -1 for none at all and shifts the others, so it gets
    # differences to the first one, which is written into the header afterwards.
    first = records[0].timestamp
    if headers_of is None:
        for index, record in enumerate(records):
            append(index, record.timestamp - first, record.key, record.value, record.headers)
    else:
        for index, record in enumerate(records):
            headers = headers_of(record)
            append(index, record.timestamp - first, record.key, record.value, headers)
    view = memoryview(builder.build())
    before = header_checksum(view)
    _, latest = TIMESTAMPS.unpack_from(view, TIMESTAMPS_AT)
    TIMESTAMPS.pack_into(view, TIMESTAMPS_AT, first, first + latest)
    correct_checksum(view, before)
    return BatchToSend(
        view, len(records), stretches([r.offset for r in records]), *end, first + latest, view
    )


def stretches(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Group ascending offsets into (first offset, count) of consecutive ones."""
    first, count = offsets[0], len(offsets)
    if offsets[-1] - first + 1 == count:
        return [(first, count)]
    found: list[tuple[int, int]] = []
    begin = 0
    for index in range(1, count + 1):
        if index == count or offsets[index] != offsets[index - 1] + 1:
            found.append((offsets[begin], index - begin))
            begin = index
    return found


_PIECE: Final = 512
"""Records decoded at once: about a millisecond."""
_TURN_S: Final = 0.01
_UNPACKED_HERE: Final = 1 << 16
"""Compressed bytes that are unpacked in the loop's own thread: at most a few milliseconds."""


class LoopShare:
    """Gives way to the other tasks of the event loop after at most some 10 ms of work."""

    def __init__(self) -> None:
        self._since = now_s()

    async def give_way(self) -> None:
        """Let others run if it is time; called after every piece of work."""
        if now_s() - self._since >= _TURN_S:
            await asyncio.sleep(0)
            self._since = now_s()


async def records_of(
    batch: BatchHeader, turns: LoopShare, wanted_offset: int = 0
) -> AsyncIterator[list[DecodedRecord]]:
    """Decode a batch, or a run of them, from ``wanted_offset`` on, piece by piece."""
    unpacks = batch.codec and len(batch.view) > _UNPACKED_HERE
    with _decoding(batch):
        for each in batches(batch.view):
            records = records_in(each.view)
            piece = await asyncio.to_thread(_piece, records) if unpacks else _piece(records)
            while piece:
                if piece[0].offset < wanted_offset:
                    piece = [record for record in piece if record.offset >= wanted_offset]
                if piece:
                    yield piece
                await turns.give_way()
                piece = _piece(records)


def first_record(batch: BatchHeader) -> DecodedRecord:
    with _decoding(batch):
        return next(records_in(batch.view))


@contextmanager
def _decoding(batch: BatchHeader) -> Iterator[None]:
    try:
        yield
    except (SrmError, GeneratorExit):
        raise
    except Exception as error:
        raise IntegrityError(
            f"batch at offset {batch.base_offset} cannot be decoded: {error!r}"
        ) from error


def _piece(records: Iterator[DecodedRecord]) -> list[DecodedRecord]:
    return list(islice(records, _PIECE))
