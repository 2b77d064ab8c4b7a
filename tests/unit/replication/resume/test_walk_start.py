"""Which batches of the target are copies of ours, and what others have written."""

from __future__ import annotations

import asyncio

import pytest
from tests.batches import Record, marker, stored
from tests.unit.replication.batches.test_legacy import message_set
from tests.unit.replication.resume.two_logs import FOREIGN, OURS, Log, of_epoch

from srm.domain.names.topics import TopicPartition
from srm.replication.batches.batch import BatchHeader, batches
from srm.replication.claim import begins_with_records
from srm.replication.log_reader import LogReader
from srm.replication.resume.find_place import OurBatches, records_of_others

FORGOTTEN = 9


def one(data: bytes) -> BatchHeader:
    [found] = batches(memoryview(bytearray(data)))
    return found


def copy_at(offset: int, epoch: int = 1) -> BatchHeader:
    return one(of_epoch(epoch, stored([Record(offset, 1000, None, b"v")], producer_id=OURS)))


def test_a_batch_at_the_first_offset_of_an_unknown_log_is_a_stray_until_a_claim() -> None:
    ours = OurBatches({OURS}, fresh=True)
    assert [ours.is_copy(copy_at(offset)) for offset in (0, 1)] == [False, False]
    assert not ours.is_copy(one(marker(2, OURS, 1)))
    assert ours.is_copy(copy_at(3))


@pytest.mark.parametrize("may_begin", [True, False])
def test_it_is_of_a_first_claim_unless_the_copy_went_to_a_topic_that_is_gone(
    may_begin: bool,
) -> None:
    ours = OurBatches({OURS}, fresh=True, may_begin=may_begin)
    assert ours.is_copy(copy_at(0, epoch=0)) is may_begin


def test_a_batch_at_the_first_offset_of_a_log_that_has_held_copies_is_ours() -> None:
    assert OurBatches({OURS}, fresh=False).is_copy(copy_at(0))


def of(producer_id: int, offset: int) -> bytes:
    return stored([Record(offset, 1000, None, b"v")], producer_id=producer_id)


def reader_of(log: Log) -> LogReader:
    return LogReader(log, TopicPartition("P.T", 0), b"", False)  # type: ignore[arg-type]


def others_in(log: Log, known: tuple[int, int] | None = None) -> tuple[int, int] | None:
    return asyncio.run(records_of_others(reader_of(log), {OURS}, known))


@pytest.mark.parametrize(
    ("held", "found"),
    [
        ([marker(0, OURS)], None),
        ([of(FOREIGN, 0), of(-1, 1), marker(2, OURS), marker(3, OURS)], (0, 2)),
        ([marker(0, FOREIGN), of(-1, 1), marker(2, OURS)], (1, 2)),
        ([marker(0, OURS), of(FOREIGN, 1), marker(2, OURS)], None),
        ([of(OURS, 0), of(FOREIGN, 1), marker(2, OURS)], None),
        ([of(FOREIGN, 0), marker(1, OURS), of(OURS, 2), marker(3, OURS)], None),
        ([of(FOREIGN, 0), marker(1, FORGOTTEN), of(FORGOTTEN, 2), marker(3, OURS)], None),
    ],
    ids=[
        "a claim alone",
        "others, then claims of ours",
        "a marker of others says nothing",
        "others after a claim",
        "a copy that was on its way",
        "copies after others",
        "copies of a forgotten claim",
    ],
)
def test_records_of_others_are_those_in_a_log_without_a_trace_of_ours(
    held: list[bytes], found: tuple[int, int] | None
) -> None:
    assert others_in(Log(held)) == found


def test_of_a_log_that_has_lost_its_end_only_what_it_holds_counts() -> None:
    assert others_in(Log([of(FOREIGN, 0)]), (0, 9)) == (0, 1)
    assert others_in(Log([]), (0, 9)) is None


def test_a_log_begins_with_records_of_any_format() -> None:
    old = Log([message_set(1, 0, 0, [(1, b"k", b"v")])])
    assert asyncio.run(begins_with_records(reader_of(old)))


def test_copies_of_a_flow_from_another_cluster_are_known_by_one_batch_of_each_claim() -> None:
    seen = list[int]()

    def is_of_another(batch: BatchHeader) -> bool:
        seen.append(batch.base_offset)
        return batch.producer_id == FORGOTTEN

    ours = OurBatches({OURS}, fresh=False, of_another=is_of_another)
    log = [marker(0, FORGOTTEN), of(FORGOTTEN, 1), of(FORGOTTEN, 2), marker(3, FOREIGN)]
    found = [ours.is_copy(one(batch)) for batch in (*log, of(FOREIGN, 4), of(OURS, 5))]

    assert found == [False, False, False, False, True, True]
    assert seen == [1, 4], "one batch of each unknown producer"
    assert {claim[0] for claim in ours.own_claims} == {FOREIGN}


def test_copies_of_a_flow_from_another_cluster_are_not_records_of_unknown_others() -> None:
    log = Log([marker(0, FORGOTTEN), of(FORGOTTEN, 1), of(FOREIGN, 2), of(FORGOTTEN, 3)])
    reader = reader_of(log)

    found = asyncio.run(records_of_others(reader, {OURS}, is_of_another=lambda _: True))

    assert found == (2, 3)


def test_of_a_log_that_was_looked_at_before_only_what_follows_is_read() -> None:
    log = Log([of(FOREIGN, number) for number in range(100)])
    assert others_in(log) == (0, 100)
    read = log.fetches
    log.append(of(FOREIGN, 100))

    assert others_in(log, (0, 100)) == (0, 101)
    assert log.fetches - read <= 3


def test_records_of_others_that_are_deleted_are_no_longer_found() -> None:
    log = Log([of(FOREIGN, 0), of(FOREIGN, 1), marker(2, OURS)], log_start=2)

    assert others_in(log, (0, 2)) is None
