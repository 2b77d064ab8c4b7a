"""Record batches as a broker would hold them, made from plain values."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from srm.domain.names.record_headers import Header
from srm.replication.batches.batch import seal
from srm.replication.batches.records import encode as encode_records
from srm.replication.ports import DecodedRecord


@dataclass(frozen=True)
class Record:
    """One record to be encoded."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[Header] = field(default_factory=list)


def content(record: DecodedRecord) -> tuple[object, ...]:
    """Everything but the offset."""
    return record.timestamp, record.key, record.value, record.headers


def encode(records: Sequence[Record], codec: int = 0) -> memoryview:
    """Encode records as one dense batch at offset 0."""
    [built] = encode_records(records, codec)
    seal(built.view)
    return built.view


def at_offset(view: memoryview, base_offset: int) -> bytes:
    """Return a batch as the broker stores it at an offset."""
    stored = bytearray(view)
    struct.pack_into(">q", stored, 0, base_offset)
    return bytes(stored)


def stored(records: Sequence[Record], codec: int = 0, producer_id: int = -1) -> bytes:
    """Return records as a broker stores one batch of them, with holes where offsets are missing."""
    first, time = records[0].offset, records[0].timestamp
    batch = DefaultRecordBatchBuilder(2, codec, 0, producer_id, 0, 0, 2**31 - 1)
    for record in records:  # the builder takes a first time of -1 for none, and shifts the others
        batch.append(
            *(record.offset - first, record.timestamp - time),
            *(record.key, record.value, record.headers),
        )
    view = memoryview(batch.build())
    struct.pack_into(">qq", view, 27, time, max(record.timestamp for record in records))
    seal(view)
    return at_offset(view, first)


def marker(offset: int, producer_id: int, epoch: int = 0) -> bytes:
    """Return the marker of an aborted transaction."""
    view = bytearray(encode([Record(0, 1000, struct.pack(">hh", 0, 0), bytes(6))]))
    struct.pack_into(">q", view, 0, offset)
    struct.pack_into(">h", view, 21, 0x30)
    struct.pack_into(">qh", view, 43, producer_id, epoch)
    seal(memoryview(view))
    return bytes(view)
