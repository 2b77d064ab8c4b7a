"""Message sets of the formats before Kafka 0.11 (magic 0 and 1), which old segments may hold.

Brokers give them out unchanged (Fetch 10 and later), but take only version 2 batches. Layout:
Kafka's LegacyRecord; decoded by aiokafka.
"""

from __future__ import annotations

import struct
from typing import Final

from srm.errors import IntegrityError
from srm.extras import MissingExtraError, library
from srm.replication.batches.batch import seal

default_records = library("aiokafka.record.default_records")
legacy_records = library("aiokafka.record.legacy_records")

_NO_LIMIT: Final = 2**31 - 1
_NO_TIMESTAMP: Final = -1
_OFFSET: Final = struct.Struct(">q")
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 17
_CODEC_BITS: Final = 0x07
_TIMESTAMPS: Final = struct.Struct(">qq")
_TIMESTAMPS_AT: Final = 27


def convert(message_set: memoryview) -> memoryview:
    """Return one message, or a compressed set of them, as a version 2 batch at its offsets."""
    (offset,) = _OFFSET.unpack_from(message_set)
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
    builder = default_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=message_set[_ATTRIBUTES_AT] & _CODEC_BITS,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=_NO_LIMIT,
    )
    times = [_NO_TIMESTAMP if r.timestamp is None else r.timestamp for r in records]
    first = records[0].offset
    for record, time in zip(records, times, strict=True):
        builder.append(record.offset - first, time - times[0], record.key, record.value, [])
    batch = memoryview(builder.build())
    _OFFSET.pack_into(batch, 0, first)
    _TIMESTAMPS.pack_into(batch, _TIMESTAMPS_AT, times[0], max(times))
    seal(batch)
    return batch
