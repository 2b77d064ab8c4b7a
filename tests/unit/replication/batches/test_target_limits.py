"""What a target that refuses batches ends up with: every record it can take, in order."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st
from tests.batches import Record, at_offset, encode

from srm.domain.flow_state.replication_records import PartitionNotes
from srm.replication.batches.batch import BatchToSend, batches
from srm.replication.batches.records import decode
from srm.replication.batches.to_send import TargetLimits, batches_to_send
from srm.replication.ports import DecodedRecord as Decoded
from srm.replication.ports import FetchedPartition, Produced

TOO_LARGE, INVALID_TIMESTAMP = 10, 32
MOST_REFUSALS = 200


def copied_with_losses(
    log: bytes, refusal: Callable[[memoryview, Sequence[Decoded]], Produced | None]
) -> tuple[list[int], list[int], int]:
    """Copy a log as a partition does: return copied and lost source offsets, and refusals."""
    limits, copied, lost, refusals, position = TargetLimits(), [], [], 0, 0
    end = [batch.last_offset + 1 for batch in batches(memoryview(log))][-1]
    while position < end and refusals < MOST_REFUSALS:
        fetched = FetchedPartition(b"", 0, 0, end, end, 0, (), memoryview(bytearray(log)))
        for outgoing in batches_to_send(
            fetched, position, None, read_committed=True, limits=limits
        ):
            if not isinstance(outgoing, BatchToSend):
                position = max(
                    position, outgoing.source_next
                )  # the log is given from its beginning each time
                continue
            [batch] = batches(outgoing.view)
            produced = refusal(outgoing.view, decode(batch))
            if produced is not None:
                refusals += 1
                if not limits.learn(produced, len(outgoing.view), outgoing.offsets()):
                    lost += outgoing.offsets()
                    position = outgoing.offsets()[-1] + 1
                break
            copied += outgoing.offsets()
            position = outgoing.source_next
            limits.on_accept(len(outgoing.view), position)
    return copied, lost, refusals


def a_log(batch_sizes: Sequence[Sequence[int]], codec: int = 0) -> bytes:
    log, offset = b"", 0
    for sizes in batch_sizes:
        records = [
            Record(i, 1000 + offset + i, b"k", bytes([offset % 251]) * n)
            for i, n in enumerate(sizes)
        ]
        log += at_offset(encode(records, codec), offset)
        offset += len(sizes)
    return log


@given(
    st.lists(st.lists(st.integers(0, 2000), min_size=1, max_size=30), min_size=1, max_size=6),
    st.integers(300, 20_000),
    st.sampled_from([0, 1]),
)
def test_only_records_above_the_limit_are_lost_to_it(
    batch_sizes: list[list[int]], limit: int, codec: int
) -> None:
    def refusal(view: memoryview, records: Sequence[Decoded]) -> Produced | None:
        del records
        return Produced(TOO_LARGE, -1) if len(view) > limit else None

    copied, lost, _ = copied_with_losses(a_log(batch_sizes, codec), refusal)

    sizes = [n for sizes in batch_sizes for n in sizes]
    alone = [
        len(encode([Record(0, 1000 + offset, b"k", bytes([offset % 251]) * n)], codec))
        for offset, n in enumerate(sizes)
    ]
    if codec == 0:
        assert lost == [offset for offset, size in enumerate(alone) if size > limit]
    assert sorted(copied + lost) == list(range(len(sizes)))
    assert copied == sorted(copied)


@given(st.sets(st.integers(0, 99)), st.booleans())
def test_refused_records_are_found_one_by_one(bad: set[int], named: bool) -> None:
    def refusal(view: memoryview, records: Sequence[Decoded]) -> Produced | None:
        del view
        found = [i for i, record in enumerate(records) if record.timestamp - 1000 in bad]
        told = tuple(found) if named else ()
        return Produced(INVALID_TIMESTAMP, -1, "", told) if found else None

    copied, lost, refusals = copied_with_losses(a_log([[10] * 40, [10] * 3, [10] * 57]), refusal)

    if refusals < MOST_REFUSALS:
        assert lost == sorted(bad)
        assert copied == [offset for offset in range(100) if offset not in bad]
    if named:
        assert refusals <= len(bad) + 3


def test_adjacent_refused_records_are_skipped_together_where_the_broker_names_them() -> None:
    bad = {*range(20, 60), *range(70, 90)}

    def refusal(view: memoryview, records: Sequence[Decoded]) -> Produced | None:
        del view
        found = [i for i, record in enumerate(records) if record.timestamp - 1000 in bad]
        return Produced(INVALID_TIMESTAMP, -1, "", tuple(found)) if found else None

    copied, lost, refusals = copied_with_losses(a_log([[10] * 40, [10] * 3, [10] * 57]), refusal)

    assert (lost, copied) == (sorted(bad), [n for n in range(100) if n not in bad])
    assert refusals <= 8


def test_a_large_batch_is_refused_a_few_times_and_the_following_ones_not_at_all() -> None:
    log = a_log([[1000] * 100] * 50)

    _, lost, refusals = copied_with_losses(
        log, lambda view, records: Produced(TOO_LARGE, -1) if len(view) > 30_000 else None
    )

    assert lost == []
    assert refusals <= 14


def test_what_is_left_out_is_told_until_the_copy_has_passed_it() -> None:
    limits = TargetLimits()
    limits.decide([decided(7, 8), decided(3, 4)])
    assert limits.left_out == [(3, 4), (7, 8)]

    limits.on_accept(100, source_next=5)

    assert limits.left_out == [(7, 8)]


def decided(first: int, end: int, epoch: int = -1) -> PartitionNotes:
    place = "T", 0, "A" * 22
    return PartitionNotes.from_decision("discard", "r", place, (first, end), "why", 0, epoch=epoch)


def test_a_cut_log_gives_what_was_left_out_to_other_records() -> None:
    limits = TargetLimits()
    limits.decide([decided(5, 6), decided(10, 20), decided(25, 26), decided(30, 40)])

    limits.cut(15)

    assert limits.left_out == [(5, 6), (10, 15)]


def test_a_batch_of_a_later_leader_epoch_has_the_place_of_other_records() -> None:
    log = bytearray(a_log([[10] * 5] * 4))  # from 0, 5, 10 and 15 on
    starts = [batch.base_offset for batch in batches(memoryview(log))]
    for number, batch in enumerate(batches(memoryview(log))):
        struct.pack_into(">i", batch.view, 12, 3 if number < 2 else 7)
    limits = TargetLimits()

    found = []
    for epoch in (-1, 3, 7):
        for first, end in ((0, 5), (5, 10), (5, 11), (17, 30)):
            limits.decide([decided(first, end, epoch)])
            found.append((epoch, (first, end), limits.epoch_of_others(memoryview(log))))

    assert starts == [0, 5, 10, 15]
    assert [one for one in found if one[2] is not None] == [(3, (5, 11), 7), (3, (17, 30), 7)]


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=3),
)
def test_ranges_that_are_left_out_are_passed_and_nothing_else_is(
    counts: list[int], ranges: list[tuple[int, int]]
) -> None:
    log = a_log([[10] * count for count in counts])
    end = sum(counts)
    left_out = [(first, first + size) for first, size in ranges]
    limits, copied, position = TargetLimits(), [], 0
    limits.decide(decided(*bounds) for bounds in left_out)
    fetched = FetchedPartition(b"", 0, 0, end, end, 0, (), memoryview(bytearray(log)))
    for outgoing in batches_to_send(fetched, 0, None, read_committed=True, limits=limits):
        if isinstance(outgoing, BatchToSend):
            copied += outgoing.offsets()
        position = max(position, outgoing.source_next)

    excluded = {offset for first, after in left_out for offset in range(first, after)}
    assert copied == [offset for offset in range(end) if offset not in excluded]
    assert position == end
    for first in range(end):
        assert limits.leaves_out(first, first + 1) == (first in excluded)
    assert limits.leaves_out(0, end) == (excluded >= set(range(end)))
