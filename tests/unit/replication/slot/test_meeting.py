"""Which batches of the target are copies of ours."""

from __future__ import annotations

from tests.batches import Record, marker, stored

from srm.replication.batches.batch import BatchHeader, batches
from srm.replication.slot.meeting import OurBatches

OURS = 7


def one(data: bytes) -> BatchHeader:
    [found] = batches(memoryview(bytearray(data)))
    return found


def copy_at(offset: int) -> BatchHeader:
    return one(stored([Record(offset, 1000, None, b"v")], producer_id=OURS))


def test_a_batch_at_the_first_offset_of_an_unknown_log_is_a_stray_until_a_claim() -> None:
    ours = OurBatches({OURS}, fresh=True)
    assert [ours.is_copy(copy_at(offset)) for offset in (0, 1)] == [False, False]
    assert not ours.is_copy(one(marker(2, OURS)))
    assert ours.is_copy(copy_at(3))


def test_a_batch_at_the_first_offset_of_a_log_that_has_held_copies_is_ours() -> None:
    assert OurBatches({OURS}, fresh=False).is_copy(copy_at(0))
