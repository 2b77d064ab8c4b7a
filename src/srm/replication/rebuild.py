"""The rebuild path: decode a batch and encode it again, for what cannot pass through.

Brokers accept only dense batches, so one with holes (compaction) is written anew; a batch that
begins before the wanted offset loses its head; LogAppendTime becomes an explicit timestamp. Records
are decoded and encoded by aiokafka's native code.
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
        raise IntegrityError(
            f"batch at offset {batch.base_offset} cannot be decoded: {error!r}"
        ) from error
    return [record for record in records if record.offset >= wanted_offset]


def encode(records: Sequence[Record], codec: int) -> memoryview:
    """Encode records as one dense batch with the given compression codec."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=_NO_LIMIT,
    )
    for index, record in enumerate(records):
        builder.append(
            index,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
    return memoryview(builder.build())


def stretches(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Group ascending offsets into (first offset, count) of consecutive ones."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and offset == found[-1][0] + found[-1][1]:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((offset, 1))
    return found
