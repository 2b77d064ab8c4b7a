"""The rebuild path: decode and re-encode batches that cannot pass through unchanged.

Brokers accept only dense batches, so a batch with holes (compaction) is encoded again. A batch that
begins before the wanted offset loses its head. LogAppendTime becomes an explicit timestamp. Tiny
batches are merged, too large ones are split. aiokafka's native code takes 0.7 us a record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from srm.errors import IntegrityError
from srm.extras import MissingExtraError, library
from srm.replication.batches.batch import BatchHeader, correct_checksum, header_checksum
from srm.replication.batches.records import records_in
from srm.replication.ports import DecodedRecord, Header

default_records = library("aiokafka.record.default_records")

NO_LIMIT: Final = 2**31 - 1
_TIMESTAMPS: Final = struct.Struct(">qq")
_TIMESTAMPS_AT: Final = 27


HeadersOf = Callable[[DecodedRecord], list[Header]]


@dataclass(frozen=True, slots=True)
class RebuiltBatch:
    """One dense batch; ``stretches`` are (first source offset, count) of its records, in order."""

    view: memoryview
    count: int
    stretches: list[tuple[int, int]]
    max_timestamp: int


def decode(batch: BatchHeader, wanted_offset: int = 0) -> list[DecodedRecord]:
    """Decode records from ``wanted_offset`` on; with LogAppendTime they have the batch's time."""
    try:
        records: list[DecodedRecord] = list(records_in(batch.view))
    except MissingExtraError:
        raise
    except Exception as error:
        raise IntegrityError(
            f"batch at offset {batch.base_offset} cannot be decoded: {error!r}"
        ) from error
    if records and records[0].offset < wanted_offset:
        return [record for record in records if record.offset >= wanted_offset]
    return records


def encode(
    records: Sequence[DecodedRecord],
    codec: int,
    *,
    limit: int = NO_LIMIT,
    headers_of: HeadersOf | None = None,
) -> Iterator[RebuiltBatch]:
    """Encode records as dense batches of at most ``limit`` bytes, or of one record each.

    ``headers_of``: returns the headers that a record gets instead of its own.
    """
    built = _build(records, codec, headers_of)
    count = len(records)
    if len(built.view) <= limit or count == 1:
        yield built
        return
    step = max(1, count // -(-len(built.view) // limit))
    for at in range(0, count, step):
        yield from encode(records[at : at + step], codec, limit=limit, headers_of=headers_of)


def _build(
    records: Sequence[DecodedRecord], codec: int, headers_of: HeadersOf | None
) -> RebuiltBatch:
    builder = default_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=NO_LIMIT,
    )
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
    _, latest = _TIMESTAMPS.unpack_from(view, _TIMESTAMPS_AT)
    _TIMESTAMPS.pack_into(view, _TIMESTAMPS_AT, first, first + latest)
    correct_checksum(view, before)
    return RebuiltBatch(view, len(records), stretches(records), first + latest)


def stretches(records: Sequence[DecodedRecord]) -> list[tuple[int, int]]:
    """Group records in offset order into (first offset, count) of consecutive ones."""
    first, count = records[0].offset, len(records)
    if records[-1].offset - first + 1 == count:
        return [(first, count)]
    found: list[tuple[int, int]] = []
    begin = 0
    for index in range(1, count + 1):
        if index == count or records[index].offset != records[index - 1].offset + 1:
            found.append((records[begin].offset, index - begin))
            begin = index
    return found
