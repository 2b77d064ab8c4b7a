"""Where a copy ends is found as its next owner would find it, without writing anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.batches import Record, marker, stored
from tests.unit.replication.resume.two_logs import OURS, Log

from srm.domain.flow_state.replication_records import AssignedPartition, PartitionNotes
from srm.domain.names.record_headers import ClusterIds
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.runs import Lineage, OffsetRange, Run
from srm.domain.recovery.source_return import CopyEnd
from srm.errors import IntegrityError
from srm.replication import log_reader
from srm.replication.log_reader import LogReader
from srm.replication.mapping.starts import Start
from srm.replication.ports import EpochEnd, Fetched, FetchFrom
from srm.replication.resume.source_lookahead import Comparison
from srm.replication.takeover import WalkedLogs, find_copy_end, read_range
from srm_lab.testing.flows import flow_config


class EpochLog(Log):
    """A log that knows where its leader epochs end."""

    epochs: dict[int, int | EpochEnd] = {}  # noqa: RUF012 - each test sets its own

    stable_end: int | None = None

    async def fetch(self, node: int, partitions: Sequence[FetchFrom], **options: Any) -> Fetched:
        fetched = await super().fetch(node, partitions, **options)
        if self.stable_end is not None:
            fetched.partitions[0].last_stable_offset = self.stable_end
        return fetched

    async def epoch_end(self, partition: TopicPartition, epoch: int) -> EpochEnd:
        del partition
        found = self.epochs.get(epoch, EpochEnd(-1, -1))
        return found if isinstance(found, EpochEnd) else EpochEnd(epoch, found)

    def leaders_changed(self) -> None:
        """Nothing is remembered."""


def records(*ranges: tuple[int, int], shift: int = 0) -> list[Record]:
    return [
        Record(offset + shift, 1000 + offset, b"k", str(offset).encode())
        for first, end in ranges
        for offset in range(first, end)
    ]


def log_of(*batches: Sequence[Record], producer_id: int = -1) -> EpochLog:
    return EpochLog([stored(batch, producer_id=producer_id) for batch in batches if batch])


def reader(log: Log) -> LogReader:
    return LogReader(log, TopicPartition("T", 0), b"", read_committed=True)  # type: ignore[arg-type]


def found(
    source: Log, target: Log, start: Start | None, left_out: Sequence[tuple[int, int]] = ()
) -> CopyEnd:
    comparison = Comparison(left_out=left_out)
    return asyncio.run(find_copy_end(reader(source), reader(target), start, comparison))


def known(source_next: int, target_next: int, **more: object) -> Start:
    """Return a start with all records before it in the map, unless told otherwise."""
    more = {"last_run": Run(0, 0, source_next), **more}
    return Start(source_next, target_next, frozenset({OURS}), **more)  # type: ignore[arg-type]


@given(st.integers(0, 30), st.data())
def test_the_copy_ends_where_it_ends_and_not_where_it_was_last_reported(
    copied: int, data: st.DataObject
) -> None:
    reported = data.draw(st.integers(0, copied))
    size = data.draw(st.integers(1, 7))
    everything = records((0, 30))
    source = log_of(*(everything[at : at + size] for at in range(0, 30, size)))
    ours = [stored(records((at, at + 1), shift=1), producer_id=OURS) for at in range(copied)]
    target = Log([marker(0, OURS, 2), *ours, marker(copied + 1, OURS, 3)])

    end = found(source, target, known(reported, reported + 1))

    assert (end.copied_to, end.target_next) == (copied, reported + 1)
    assert end.cut_from is None


def test_a_log_that_goes_on_under_a_later_epoch_parts_where_the_former_one_ended() -> None:
    source = log_of(records((0, 40)))  # 20 to 40 were written by a leader that had lost the rest
    source.epochs = {4: 20}
    target = log_of(records((0, 30)), producer_id=OURS)

    end = found(source, target, known(30, 30, source_lineage=Lineage(((4, 1),))))

    assert (end.copied_to, end.cut_from, end.cut_to) == (20, 20, 30)


def test_a_source_that_lost_only_markers_after_the_copy_has_lost_nothing() -> None:
    source = log_of(records((0, 20)))
    source.epochs = {4: 20}
    target = log_of(records((0, 20)), producer_id=OURS)
    lineage = Lineage(((4, 1),))

    end = found(source, target, known(22, 20, last_run=Run(0, 0, 20), source_lineage=lineage))

    assert (end.copied_to, end.cut_from) == (20, None)


def test_copies_behind_the_last_report_whose_source_is_lost_do_not_hide_where_the_logs_part() -> (
    None
):
    source = log_of(records((0, 20)))
    source.epochs = {4: 20}
    target = log_of(records((0, 35)), producer_id=OURS)

    end = found(source, target, known(30, 30, source_lineage=Lineage(((4, 1),))))

    assert (end.copied_to, end.cut_from, end.cut_to) == (20, 20, 30)


def test_an_older_log_that_has_grown_past_the_copy_parts_where_its_epochs_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_reader, "_ELECTED_S", 0.0)
    source = log_of(records((0, 40)))
    source.epochs = {3: 40}
    target = log_of(records((0, 30)), producer_id=OURS)

    end = found(source, target, known(30, 30, source_lineage=Lineage(((3, 1), (4, 20)))))

    assert (end.copied_to, end.cut_from, end.cut_to) == (20, 20, 30)


def test_an_older_log_without_any_epoch_that_was_read_is_ambiguous() -> None:
    source = log_of(records((0, 40)))
    source.epochs = {4: EpochEnd(2, 25)}
    target = log_of(records((0, 30)), producer_id=OURS)

    with pytest.raises(IntegrityError, match="offset at which they diverge is unknown"):
        found(source, target, known(30, 30, source_lineage=Lineage(((4, 20),))))


def test_a_log_that_holds_more_of_an_earlier_epoch_parts_where_ours_began() -> None:
    source = log_of(records((0, 40)))
    source.epochs = {4: EpochEnd(3, 35), 3: 35}
    target = log_of(records((0, 30)), producer_id=OURS)

    end = found(source, target, known(30, 30, source_lineage=Lineage(((3, 1), (4, 20)))))

    assert (end.copied_to, end.cut_from, end.cut_to) == (20, 20, 30)


def test_an_epoch_whose_records_compaction_has_removed_is_no_other_log() -> None:
    source = log_of(records((0, 20)), records((30, 40)))
    source.epochs = {4: EpochEnd(3, 30), 3: 30}
    target = log_of(records((0, 30)), producer_id=OURS)
    lineage = Lineage(((3, 1), (4, 20)))

    assert found(source, target, known(30, 30, source_lineage=lineage)).copied_to == 30


def test_what_was_left_out_earlier_does_not_hide_what_was_copied_behind_it() -> None:
    source = log_of(records((0, 40)))
    target = log_of(records((0, 10)), records((20, 30), shift=-10), producer_id=OURS)
    left_out = ((10, 20),)

    end = found(source, target, known(10, 10), left_out)

    assert (end.copied_to, end.left_out) == (30, left_out)


def test_without_a_remote_partition_everything_is_left_too() -> None:
    source = log_of(records((0, 9)))

    end = asyncio.run(find_copy_end(reader(source), None, None, Comparison()))

    assert (end.copied_to, end.log_end, end.high_watermark) == (0, 9, 9)


def test_an_open_transaction_ends_what_the_flow_would_copy() -> None:
    source = log_of(records((0, 20)))
    source.stable_end = 15

    end = found(source, log_of(records((0, 9)), producer_id=OURS), known(9, 9))

    assert (end.copied_to, end.log_end, end.high_watermark) == (9, 15, 20)


@pytest.mark.parametrize(("epoch", "left_out"), [(4, ((5, 7),)), (5, ()), (-1, ((5, 9),))])
def test_what_was_decided_hides_no_records_that_have_these_offsets_since(
    epoch: int, left_out: tuple[tuple[int, int], ...]
) -> None:
    """The source holds epoch 4 up to offset 7, and other records after that."""
    assigned = AssignedPartition("T", 0, "A" * 21 + "g", "P.T", "B" * 21 + "g")
    place = assigned.topic, assigned.partition, assigned.topic_id
    note = PartitionNotes.from_decision("discard", "r", place, (5, 9), "why", 0, epoch=epoch)
    logs = {"P": log_of(records((0, 10))), "B": log_of(records((0, 5)), producer_id=OURS)}
    logs["P"].epochs = {4: 7, 5: EpochEnd(4, 7)}

    class Starts:
        def load(self, partitions: Sequence[AssignedPartition]) -> dict[AssignedPartition, Start]:
            return {one: known(5, 5, left_out=(note,)) for one in partitions}

    @asynccontextmanager
    async def connect(alias: str) -> AsyncIterator[Any]:
        yield logs[alias]

    walked = WalkedLogs(flow_config(), connect, cast("Any", Starts()), lambda: ClusterIds("p", "b"))
    end = walked.copy_ends([assigned], lambda done: None)[assigned]

    assert isinstance(end, CopyEnd), end
    assert (end.copied_to, end.left_out) == (5, left_out)


def test_of_a_partition_that_was_never_copied_everything_is_left() -> None:
    source = log_of(records((7, 40)))
    source.start = 7

    end = found(source, Log([marker(0, OURS, 1)]), None)

    assert (end.copied_to, end.cut_from) == (7, None)
    assert end.log_start <= 7


@given(
    st.lists(st.tuples(st.sampled_from("rm"), st.integers(1, 6)), min_size=1, max_size=8),
    st.data(),
)
def test_a_range_holds_its_records_and_no_markers(
    parts: list[tuple[str, int]], data: st.DataObject
) -> None:
    batches, wanted, at = [], [], 0
    for kind, count in parts:
        if kind == "m":
            batches.append(marker(at, 99))
            at += 1
        else:
            batches.append(stored(records((at, at + count))))
            wanted += range(at, at + count)
            at += count
    log = Log(batches)
    log.end += data.draw(st.integers(0, 2), label="offsets that compaction has removed at the end")
    start = data.draw(st.integers(0, log.end))
    end = data.draw(st.integers(start, log.end))

    async def read() -> list[int]:
        one = OffsetRange("T", 0, start, end)
        return [r.offset async for piece in read_range(reader(log), one, None) for r in piece]

    assert asyncio.run(read()) == [offset for offset in wanted if start <= offset < end]
