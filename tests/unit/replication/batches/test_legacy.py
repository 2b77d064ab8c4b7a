"""Messages of the formats before Kafka 0.11 arrive as records of today."""

from __future__ import annotations

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from srm.errors import IntegrityError
from srm.replication.batches.batch import BatchToSend, batches
from srm.replication.batches.records import decode
from srm.replication.batches.to_send import batches_to_send
from srm.replication.ports import FetchedPartition

Contents = list[tuple[int, bytes | None, bytes | None]]

contents = st.lists(
    st.tuples(
        st.integers(0, 2**41), st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=99)
    ),
    min_size=1,
    max_size=20,
)


def message_set(magic: int, codec: int, first: int, raw: Contents) -> bytes:
    """Return messages as a broker of that time stored them, from offset ``first`` on."""
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for index, (time, key, value) in enumerate(raw):
        # Of a compressed set the wrapper has the offset of its last message (relative in magic 1).
        offset = index if codec and magic == 1 else first + index
        builder.append(offset, timestamp=time if magic else None, key=key, value=value)
    stored = bytearray(builder.build())
    if codec and magic == 1:
        stored[0:8] = (first + len(raw) - 1).to_bytes(8, "big")
    return bytes(stored)


def copied(stored: bytes, wanted: int = 0) -> list[tuple[int, int, bytes | None, bytes | None]]:
    part = FetchedPartition(b"", 0, 0, 100, 100, 0, (), memoryview(bytearray(stored)))
    found = []
    for outgoing in batches_to_send(part, wanted, None, read_committed=True):
        if isinstance(outgoing, BatchToSend):
            records = [r for batch in batches(outgoing.view) for r in decode(batch)]
            times = zip(outgoing.offsets(), records, strict=True)
            found += [(offset, r.timestamp, r.key, r.value) for offset, r in times]
    return found


@given(st.sampled_from([0, 1]), st.sampled_from([0, 1, 2]), st.integers(0, 50), contents)
def test_every_message_keeps_offset_time_and_content(
    magic: int, codec: int, first: int, raw: Contents
) -> None:
    stored = message_set(magic, codec, first, raw)

    assert copied(stored) == [
        (first + index, time if magic else -1, key, value)
        for index, (time, key, value) in enumerate(raw)
    ]


def test_messages_and_batches_of_today_follow_each_other_from_any_offset() -> None:
    old = message_set(1, 0, 0, [(1000, b"a", b"1"), (1001, None, b"2"), (1002, b"c", None)])
    newer = message_set(1, 1, 3, [(1003, b"d", b"4"), (1004, b"e", b"5")])

    assert [offset for offset, *_ in copied(old + newer, wanted=1)] == [1, 2, 3, 4]
    assert [offset for offset, *_ in copied(old + newer[:-1])] == [0, 1, 2], "the last is cut off"


def test_a_damaged_message_is_told() -> None:
    stored = bytearray(message_set(1, 0, 7, [(1000, b"a", b"1")]))
    stored[-1] ^= 1

    with pytest.raises(IntegrityError, match="offset 7 is damaged"):
        copied(bytes(stored))
