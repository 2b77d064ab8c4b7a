"""Records decoded in Python are those that aiokafka's native code decodes."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from srm.replication.batches.records import read_plainly, records_in

PART = st.none() | st.binary(max_size=80)
RECORD = st.tuples(
    st.integers(0, 2**40), PART, PART, st.lists(st.tuples(st.text(max_size=20), PART), max_size=3)
)


def built(records: list[tuple[Any, ...]], codec: int) -> bytearray:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for offset, record in enumerate(records):
        builder.append(offset, *record)
    made: bytearray = builder.build()
    struct.pack_into(">q", made, 0, 7_000_000_000)
    return made


def fields(record: Any) -> tuple[Any, ...]:
    return (record.offset, record.timestamp, record.key, record.value, list(record.headers))


@given(st.lists(RECORD, min_size=1, max_size=5), st.integers(0, 4), st.booleans())
def test_any_batch_is_decoded_as_by_aiokafka(
    records: list[tuple[Any, ...]], codec: int, stamped: bool
) -> None:
    batch = built(records, codec)
    if stamped:
        batch[22] |= 0x08
    expected = [fields(one) for one in MemoryRecords(bytes(batch)).next_batch()]

    assert [fields(one) for one in read_plainly(memoryview(batch))] == expected


def test_records_that_have_ended_stay_ended() -> None:
    records = records_in(memoryview(built([(0, b"key", b"value", [])], 0)))

    assert [one.value for one in records] == [b"value"]
    assert next(records, None) is None


def test_a_record_that_is_longer_than_its_batch_is_an_error() -> None:
    batch = built([(0, b"key", b"value", [])], 0)

    with pytest.raises((ValueError, IndexError)):
        list(read_plainly(memoryview(batch)[:-3]))
