"""Batches that are not srm's."""

from __future__ import annotations

from aiokafka.record.default_records import DefaultRecordBatchBuilder


def foreign_batch(now_ms: int) -> bytes:
    """Return a batch of a foreign writer to a remote topic, without a producer id."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2**31 - 1)
    builder.append(0, now_ms, b"stranger", b"stranger", [])
    return bytes(builder.build())
