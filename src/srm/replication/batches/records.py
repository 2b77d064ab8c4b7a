"""Records of a batch: decoded by aiokafka's native code where it is installed, else here.

The base install has no aiokafka: commands read a few batches, a slot reads all of them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final, NamedTuple

from srm.replication.batches.batch import HEADER_SIZE
from srm.replication.batches.compressed import codec_of
from srm.replication.codecs import decompress
from srm.replication.ports import DecodedRecord, Header

_HEADER: Final = struct.Struct(">q13xh4xqq14xi")
_LOG_APPEND_TIME: Final = 0x08

Reader = Callable[[memoryview], Iterator[DecodedRecord]]


class PlainRecord(NamedTuple):
    """One record (implements :class:`srm.replication.ports.DecodedRecord`)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]


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


def read_plainly(batch: memoryview) -> Iterator[PlainRecord]:
    """Do the same in Python."""
    base, attributes, first_time, latest_time, count = _HEADER.unpack_from(batch)
    stamped = attributes & _LOG_APPEND_TIME
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
            raise ValueError(f"the record at offset {base + delta} is not as long as it says")
        timestamp = latest_time if stamped else first_time + time
        yield PlainRecord(base + delta, timestamp, key, value, headers)


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
