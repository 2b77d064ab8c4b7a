"""What is sent of a fetch response, and what is dropped."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.batches import Record, encode

from srm.errors import IntegrityError
from srm.replication.batches.batch import BatchToSend, Dropped, batches, seal
from srm.replication.batches.records import decode
from srm.replication.batches.to_send import batches_to_send
from srm.replication.ports import FetchedPartition

COMMIT, ABORT = 1, 0


def data(base_offset: int, count: int, producer_id: int = -1, codec: int = 0) -> bytes:
    records = [Record(i, 1000 + i, b"k", str(base_offset + i).encode()) for i in range(count)]
    view = bytearray(encode(records, codec))
    struct.pack_into(">q", view, 0, base_offset)
    if producer_id >= 0:
        struct.pack_into(">h", view, 21, 0x10)
        struct.pack_into(">q", view, 43, producer_id)
    seal(memoryview(view))
    return bytes(view)


def marker(offset: int, producer_id: int, kind: int) -> bytes:
    key = struct.pack(">hh", 0, kind)
    view = bytearray(encode([Record(0, 1000, key, b"\0" * 6)], 0))
    struct.pack_into(">q", view, 0, offset)
    struct.pack_into(">h", view, 21, 0x30)
    struct.pack_into(">q", view, 43, producer_id)
    seal(memoryview(view))
    return bytes(view)


def fetched(records: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> FetchedPartition:
    return FetchedPartition(b"", 0, 0, 100, 100, 0, aborted, memoryview(bytearray(records)))


def values(found: list[BatchToSend | Dropped]) -> list[bytes | None]:
    sent = [outgoing for outgoing in found if isinstance(outgoing, BatchToSend)]
    return [r.value for outgoing in sent for batch in batches(outgoing.view) for r in decode(batch)]


def test_a_committed_transaction_is_sent_without_its_marker() -> None:
    log = data(0, 2, producer_id=7) + marker(2, 7, COMMIT) + data(3, 1)

    found = list(batches_to_send(fetched(log), 0, None, read_committed=True))

    assert values(found) == [b"0", b"1", b"3"]
    [merged] = found
    assert isinstance(merged, BatchToSend)
    assert merged.stretches == [(0, 2), (3, 1)]
    assert merged.source_next == 4


def test_an_aborted_transaction_is_dropped_up_to_its_marker_and_no_further() -> None:
    log = (
        data(0, 2, producer_id=7)
        + data(2, 1, producer_id=8)
        + marker(3, 7, ABORT)
        + data(4, 1, producer_id=7)
        + marker(5, 8, COMMIT)
        + marker(6, 7, COMMIT)
    )

    found = list(batches_to_send(fetched(log, ((7, 0),)), 0, None, read_committed=True))

    assert values(found) == [b"2", b"4"]
    [two, merged] = found
    assert two == Dropped(2, -1)
    assert isinstance(merged, BatchToSend)
    assert merged.stretches == [(2, 1), (4, 1)]
    assert merged.source_next == 7


def test_a_marker_that_the_cleaner_has_emptied_ends_no_transaction() -> None:
    """Kafka's consumer reads it so, too; the cleaner keeps such a batch for its producer's sake."""
    emptied = bytearray(marker(2, 7, ABORT))[:61]
    struct.pack_into(">i", emptied, 8, 61 - 12)
    struct.pack_into(">i", emptied, 57, 0)
    seal(memoryview(emptied))
    log = data(0, 2, producer_id=7) + bytes(emptied) + data(3, 1, producer_id=7) + data(4, 1)

    found = list(batches_to_send(fetched(log, ((7, 0),)), 0, None, read_committed=True))

    assert values(found) == [b"4"]


def test_read_uncommitted_sends_aborted_records_too() -> None:
    log = data(0, 2, producer_id=7) + marker(2, 7, ABORT)

    assert values(
        list(batches_to_send(fetched(log, ((7, 0),)), 0, None, read_committed=False))
    ) == [
        b"0",
        b"1",
    ]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 40))
def test_nothing_before_the_wanted_offset_is_sent_again(sizes: list[int], wanted: int) -> None:
    log, offset = b"", 0
    for size in sizes:
        log += data(offset, size)
        offset += size

    found = list(batches_to_send(fetched(log), wanted, None, read_committed=True))

    assert values(found) == [str(i).encode() for i in range(wanted, offset)]
    ends = [outgoing.source_next for outgoing in found]
    assert ends == sorted(ends)
    assert ends[-1] == offset


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 4), st.integers(0, 3)), max_size=30),
    st.integers(0, 60),
)
def test_merging_changes_neither_records_nor_order_nor_what_is_known_of_them(
    sizes: list[tuple[int, int, int]], wanted: int
) -> None:
    log, offset = b"", 0
    expected = []
    for size, codec, hole in sizes:
        log += data(offset, size, codec=codec)
        expected += range(offset, offset + size)
        offset += size + hole

    found = list(batches_to_send(fetched(log), wanted, None, read_committed=True))

    held = [
        first + i
        for outgoing in found
        if isinstance(outgoing, BatchToSend)
        for first, count in outgoing.stretches
        for i in range(count)
    ]
    assert held == [o for o in expected if o >= wanted]
    assert values(found) == [str(o).encode() for o in held]


def test_single_records_that_arrive_together_leave_together() -> None:
    log = b"".join(data(offset, 1) for offset in range(50)) + data(50, 200)

    merged, whole = batches_to_send(fetched(log), 0, None, read_committed=True)

    assert isinstance(merged, BatchToSend)
    assert isinstance(whole, BatchToSend)
    assert (merged.count, merged.source_next) == (50, 50)
    assert whole.view.obj is not merged.view.obj
    assert (whole.count, whole.source_next) == (200, 250)


@pytest.mark.parametrize("damaged", [17, 30, 65])
@pytest.mark.parametrize("before", [0, 1, 5])
def test_a_damaged_batch_is_not_made_valid_by_a_checksum_of_ours(damaged: int, before: int) -> None:
    sound = b"".join(data(offset, 1) for offset in range(before))
    log = bytearray(sound + data(before, 3) + data(before + 3, 2))
    log[len(sound) + damaged] ^= 1

    copied = batches_to_send(fetched(bytes(log)), 0, None, read_committed=True)
    found: list[BatchToSend | Dropped] = []
    with pytest.raises(IntegrityError, match=f"offsets {before} to {before + 2} are damaged"):
        found.extend(copied)

    assert values(found) == [str(offset).encode() for offset in range(before)]
