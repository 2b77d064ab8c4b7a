"""The rebuild path: decode batches and encode them again, for what cannot pass through.

Brokers accept only dense batches, so one with holes (compaction) is written anew; a batch that
begins before the wanted offset loses its head; LogAppendTime becomes an explicit timestamp; tiny
batches become one. Records are decoded and encoded by aiokafka's native code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from srm.errors import IntegrityError
from srm.replication.batch import BatchHeader

_NO_LIMIT: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Record:
    """One decoded record, with everything the promise of equal content covers."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def same_content(self, other: Record) -> bool:
        """Whether everything but the offset is equal."""
        return (
            self.timestamp == other.timestamp
            and self.key == other.key
            and self.value == other.value
            and self.headers == other.headers
        )


def decode(batch: BatchHeader, wanted_offset: int = 0) -> list[Record]:
    """Decode the records of a batch from ``wanted_offset`` on.

    Raises:
        IntegrityError: the records cannot be decoded.
    """
    try:
        records = [
            Record(
                record.offset,
                batch.max_timestamp if batch.has_log_append_time else record.timestamp,
                record.key,
                record.value,
                tuple(record.headers),
            )
            for record in DefaultRecordBatch(bytes(batch.view))
        ]
    except Exception as error:
        raise _undecodable(batch, error) from error
    return [record for record in records if record.offset >= wanted_offset]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """One dense batch, and which source records it holds.

    ``stretches`` are (first source offset, count) of consecutive records, in order.
    """

    view: memoryview
    count: int
    stretches: list[tuple[int, int]]


def rebuild(group: Sequence[BatchHeader], wanted_offset: int) -> Rebuilt:
    """Write the records of batches of one codec, from ``wanted_offset`` on, as one batch.

    Raises:
        IntegrityError: the records cannot be decoded.
    """
    builder = _builder(group[0].codec)
    append = builder.append
    begins: list[tuple[int, int]] = []  # (source offset, index) of each stretch's first record
    shift = -1
    count = 0
    for batch in group:
        time_of_all = batch.max_timestamp if batch.has_log_append_time else None
        try:
            for record in DefaultRecordBatch(bytes(batch.view)):
                offset = record.offset
                if offset < wanted_offset:
                    continue
                append(
                    count,
                    timestamp=record.timestamp if time_of_all is None else time_of_all,
                    key=record.key,
                    value=record.value,
                    headers=record.headers,
                )
                if offset - count != shift:
                    shift = offset - count
                    begins.append((offset, count))
                count += 1
        except Exception as error:
            raise _undecodable(batch, error) from error
    ends = [index for _, index in begins[1:]] + [count]
    stretches = [(offset, end - index) for (offset, index), end in zip(begins, ends, strict=False)]
    return Rebuilt(memoryview(builder.build()) if count else memoryview(b""), count, stretches)


def encode(records: Sequence[Record], codec: int) -> memoryview:
    """Encode records as one dense batch with the given compression codec."""
    builder = _builder(codec)
    for index, record in enumerate(records):
        builder.append(
            index,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
    return memoryview(builder.build())


def _builder(codec: int) -> DefaultRecordBatchBuilder:
    return DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=_NO_LIMIT,
    )


def _undecodable(batch: BatchHeader, error: Exception) -> IntegrityError:
    return IntegrityError(f"batch at offset {batch.base_offset} cannot be decoded: {error!r}")
