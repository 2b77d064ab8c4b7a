"""Hot path frames against bytes laid out by hand from Kafka's message definitions."""

from __future__ import annotations

import struct

import pytest
from aiokafka.protocol.produce import ProduceResponse_v8
from tests.wires import buffer_of

from srm.domain.names.topics import TopicPartition
from srm.kafka.wire.frames import (
    fetch_request,
    fetch_response,
    least_produced,
    produce_request,
    produce_response,
)
from srm.replication import codes
from srm.replication.buffers import BufferPool, PooledBuffer
from srm.replication.ports import FetchFrom, ProduceAnswer, Produced

A, B = b"a" * 16, b"b" * 16


def test_a_fetch_groups_partitions_by_topic_and_keeps_their_order() -> None:
    wanted = [FetchFrom(B, 1, 10, 100), FetchFrom(A, 0, 20, 200, 5), FetchFrom(B, 2, 30, 300)]

    body = fetch_request(wanted, 500, 1000, read_committed=True)

    def partition(number: int, offset: int, size: int, epoch: int = -1) -> bytes:
        return struct.pack(">iiqiqi", number, -1, offset, epoch, -1, size) + b"\0"

    assert body == (
        struct.pack(">iiiibii", -1, 500, 1, 1000, 1, 0, -1)
        + b"\x03"
        + (B + b"\x03" + partition(1, 10, 100) + partition(2, 30, 300) + b"\0")
        + (A + b"\x02" + partition(0, 20, 200, 5) + b"\0")
        + b"\x01\x01\x00"
    )


def test_a_fetch_within_a_session_names_what_is_forgotten() -> None:
    body = fetch_request(
        [], 100, 1000, read_committed=False, session=(7, 3), forgotten=[(A, 1), (B, 0), (A, 5)]
    )

    assert body == (
        struct.pack(">iiiibii", -1, 100, 1, 1000, 0, 7, 3)
        + b"\x01"
        + b"\x03"
        + (A + b"\x03" + struct.pack(">ii", 1, 5) + b"\0")
        + (B + b"\x02" + struct.pack(">i", 0) + b"\0")
        + b"\x01\x00"
    )


def test_a_fetch_response_gives_views_of_the_records() -> None:
    records = bytes(range(200))
    body = (
        struct.pack(">i", 7)
        + b"\0"
        + struct.pack(">ihi", 3, 0, 77)
        + b"\x02"
        + A
        + b"\x03"
        + struct.pack(">ihqqq", 0, 0, 50, 40, 5)
        + b"\x02"
        + struct.pack(">qq", 9, 12)
        + b"\0"
        + struct.pack(">i", -1)
        + b"\xc9\x01"
        + records
        + b"\0"
        + struct.pack(">ihqqq", 1, 6, -1, -1, -1)
        + b"\x00"
        + struct.pack(">i", -1)
        + b"\x00"
        + b"\x01\x00\x03abc"
        + b"\0"
        + b"\0"
    )

    response = fetch_response(buffer_of(body))

    first, second = response.fetched.partitions
    assert (response.error, response.session_id, response.throttle_time_ms) == (0, 77, 3)
    assert (first.high_watermark, first.last_stable_offset, first.log_start) == (50, 40, 5)
    assert first.aborted == ((9, 12),)
    assert bytes(first.records) == records
    first.records[0] = 255
    assert 255 in response.fetched.owner.data
    assert (second.partition, second.error, len(second.records)) == (1, 6, 0)


def test_a_log_that_does_not_hold_the_epoch_up_to_the_offset_is_out_of_range() -> None:
    diverging = b"\x01\x00\x0d" + struct.pack(">iq", 4, 17) + b"\0"
    body = (
        struct.pack(">i", 7)
        + b"\0"
        + struct.pack(">ihi", 0, 0, 0)
        + b"\x02"
        + A
        + b"\x02"
        + struct.pack(">ihqqq", 0, 0, 50, 40, 5)
        + b"\x00"
        + struct.pack(">i", -1)
        + b"\x01"
        + diverging
        + b"\0"
        + b"\0"
    )

    [part] = fetch_response(buffer_of(body)).fetched.partitions

    assert (part.error, part.high_watermark) == (codes.OFFSET_OUT_OF_RANGE, 50)


def test_an_answer_that_ends_too_early_is_not_completed_from_an_earlier_one() -> None:
    """The buffer may hold more than the answer: what an answer before it has left there."""
    left_there = bytearray(100)
    answer = PooledBuffer(left_there, 12, BufferPool())

    with pytest.raises(struct.error):
        fetch_response(answer)


def test_a_produce_request_carries_the_batches_themselves() -> None:
    one, two = memoryview(bytearray(b"one")), memoryview(bytearray(b"three"))

    parts = produce_request([(TopicPartition("T", 3), one), (TopicPartition("S", 0), two)], 1000)

    assert any(part is one for part in parts)
    assert any(part is two for part in parts)
    assert b"".join(bytes(part) for part in parts) == (
        struct.pack(">hhii", -1, -1, 1000, 2)
        + (b"\0\x01S" + struct.pack(">iii", 1, 0, 5) + b"three")
        + (b"\0\x01T" + struct.pack(">iii", 1, 3, 3) + b"one")
    )


def test_a_produce_response_gives_offsets_and_reasons() -> None:
    body = (
        struct.pack(">i", 7)
        + struct.pack(">i", 1)
        + b"\0\x01T"
        + struct.pack(">i", 2)
        + struct.pack(">ihqqq", 0, 0, 77, -1, 0)
        + struct.pack(">i", 0)
        + struct.pack(">h", -1)
        + struct.pack(">ihqqq", 1, 87, -1, -1, -1)
        + struct.pack(">i", 1)
        + struct.pack(">i", 0)
        + b"\0\x03bad"
        + struct.pack(">h", -1)
        + struct.pack(">i", 25)
    )

    assert produce_response(buffer_of(body)) == ProduceAnswer(
        {
            TopicPartition("T", 0): Produced(0, 77),
            TopicPartition("T", 1): Produced(87, -1, "bad", (0,)),
        },
        throttle_time_ms=25,
    )


def test_the_answer_to_a_produce_request_is_as_large_as_is_said() -> None:
    """Else an answer that has come would be no event."""
    batches = [
        (TopicPartition("T", 0), memoryview(b"one")),
        (TopicPartition("T", 1), memoryview(b"two")),
        (TopicPartition("umlaut-\u00fc", 0), memoryview(b"three")),
    ]
    ok = (0, 5, -1, 0, [], None)
    answer = ProduceResponse_v8([("T", [(0, *ok), (1, *ok)]), ("umlaut-\u00fc", [(0, *ok)])], 0)

    assert least_produced(batches) == len(struct.pack(">i", 1) + answer.encode())


def test_a_buffer_is_used_again_only_when_nobody_refers_to_it() -> None:
    pool = BufferPool()
    first = pool.take(100_000)
    memory = first.data

    second = pool.take(100_000)
    assert second.data is not memory
    del first
    assert pool.take(100_000).data is memory


def test_small_answers_leave_the_large_buffers_to_the_records() -> None:
    pool = BufferPool()
    large = pool.take(100_000).data

    small = pool.take(100)

    assert len(small.data) == 100
    assert pool.take(90_000).data is large


def test_a_fetch_names_the_leader_epoch_that_is_known() -> None:
    """A broker that no longer leads refuses it, instead of an answer from an old log (KIP-320)."""
    wanted = FetchFrom(bytes(16), 3, 10, 1000, leader_epoch=7)

    body = fetch_request([wanted], max_wait_ms=1, max_bytes=1, read_committed=True)

    assert struct.pack(">iiq", 3, 7, 10) in bytes(body)
