"""The walk takes no more memory than it says, and lets the other tasks of its loop run."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc

import pytest
from tests.batches import Record, marker, stored
from tests.unit.replication.mapping.map_world import starts
from tests.unit.replication.resume.two_logs import CLAIM, OURS, Log

from srm.domain.flow_state.replication_records import (
    AssignedPartition,
    PartitionPosition,
    SlotReport,
)
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_records import MapBlock
from srm.errors import IntegrityError
from srm.replication.log_reader import LogReader
from srm.replication.mapping.starts import Start
from srm.replication.partition import PartitionCopy
from srm.replication.resume import resume as resuming
from srm.replication.resume import source_lookahead
from srm.replication.resume.resume import Resumed, Walked, resume
from srm.replication.resume.source_lookahead import Comparison, SourceAhead

BATCH = 2000
SMALL = 1 / 4
T = TopicPartition("T", 0)


def log_of(records: list[Record], codec: int = 0, producer_id: int = -1) -> Log:
    end = records[-1].offset + 1
    found = [
        stored(records[at : at + BATCH], codec, producer_id) for at in range(0, len(records), BATCH)
    ]
    last = marker(end, OURS, 3) if producer_id == OURS else marker(end, 99)
    return Log([*found, last])


def many(count: int, first: int = 0, value: bytes = b"%0100d") -> list[Record]:
    return [Record(first + i, 1000 + i, b"%09d" % i, value % i) for i in range(count)]


def readers(source: Log, target: Log) -> tuple[LogReader, LogReader]:
    return LogReader(source, T, b"", True), LogReader(target, T, b"", False)  # type: ignore[arg-type]


def test_what_is_opened_ahead_takes_no_more_memory_than_its_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the records' size: measured with both indexes, at the limit."""
    monkeypatch.setattr(source_lookahead, "LOOK_AHEAD_RECORDS", 30_000)
    source = log_of(many(60_000, value=b"%0400d"))

    async def open_all() -> SourceAhead:
        ahead = SourceAhead(readers(source, source)[0], 0, Comparison())
        await ahead.index_contents()
        await ahead.index_keys()
        while await ahead.open_more():
            pass
        return ahead

    tracemalloc.start()
    try:
        ahead = asyncio.run(open_all())
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert 30_000 <= ahead.opened_end < 30_000 + BATCH
    account = ahead.opened_end * source_lookahead.RECORD_BYTES
    fetched = 4 * BATCH * 500  # a fetch of three batches, one of them unpacked
    assert account / 2 < held < account + fetched, "an account that is far too high is none"
    assert peak < account + 2 * fetched


def gaps_beside(source: Log, target: Log) -> tuple[float, Resumed]:
    """Return which share of a walk another task had to wait at once, at most, in CPU time.

    Of up to three walks, as a busy machine may take its time away in the middle of a turn.
    """
    least = 1.0
    for _ in range(3):
        gap, total, found = _gap_beside(source, target)
        least = min(least, gap / total)
        if least < SMALL:
            break
    return least, found


def _gap_beside(source: Log, target: Log) -> tuple[float, float, Resumed]:

    async def go() -> tuple[float, float, Resumed]:
        waits = [0.0]
        at = began = time.thread_time()

        async def tick() -> None:
            nonlocal at
            while True:
                now = time.thread_time()
                waits.append(now - at)
                at = now
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        start = Start(0, 1, frozenset({OURS}))
        found = await resume(*readers(source, target), start, CLAIM, Comparison())
        ended = time.thread_time()
        ticking.cancel()
        return max(*waits, ended - at), ended - began, found

    gc.collect()
    gc.disable()  # a collection of the tests' own objects is not the walk's
    try:
        return asyncio.run(go())
    finally:
        gc.enable()


def test_other_tasks_wait_for_a_small_part_of_a_walk_over_recompressed_batches() -> None:
    source = many(60_000)
    copied = [Record(r.offset + 1, r.timestamp, r.key, r.value) for r in source]

    share, found = gaps_beside(log_of(source), log_of(copied, 1, OURS))

    assert found.source_next == 60_000
    assert share < SMALL


def test_other_tasks_wait_for_a_small_part_of_a_walk_over_what_compaction_removed() -> None:
    """Each copied record is looked for in vain, and each has a later one of its key."""
    copied = many(20_000, first=1)
    source = many(20_000, first=50_000, value=b"new %d")

    share, found = gaps_beside(log_of(source), log_of(copied, 0, OURS))

    assert (found.source_next, found.runs) == (20_000, ())
    assert share < SMALL


def test_a_long_walk_hands_out_what_is_proven_and_continues_there_after_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resuming, "_REPORT_EVERY_S", -1.0)
    source = many(10 * BATCH)
    target = log_of([Record(r.offset + 1, r.timestamp, r.key, r.value) for r in source], 0, OURS)
    told: list[Walked] = []

    class KilledError(Exception):
        """Ends the walk where a kill would."""

    def kill(walked: Walked) -> None:
        told.append(walked)
        if len(told) == 4:
            raise KilledError

    start = Start(0, 1, frozenset({OURS}))
    with pytest.raises(KilledError):
        asyncio.run(resume(*readers(log_of(source), target), start, CLAIM, Comparison(), kill))

    place = told[-1].settled
    assert place is not None
    assert (place.source_next, place.target_next) == (4 * BATCH, 4 * BATCH + 1)
    assert told[-1].text == f"walking the logs: target offset {4 * BATCH + 1} of {target.end}"
    written = [run for walked in told if walked.settled for run in walked.settled.runs]
    assert sum(run.count for run in written) == 4 * BATCH

    again = Start(place.source_next, place.target_next, frozenset({OURS}))
    source_log = log_of(source)
    later: list[Walked] = []
    found = asyncio.run(
        resume(*readers(source_log, target), again, CLAIM, Comparison(), later.append)
    )

    assert found.source_next == 10 * BATCH
    rest = [run for walked in later if walked.settled for run in walked.settled.runs]
    assert sum(run.count for run in (*rest, *found.runs)) == 6 * BATCH


def test_nothing_is_handed_out_before_it_is_clear_which_records_were_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Retention has taken an unknown number of equal records from the source."""
    monkeypatch.setattr(resuming, "_REPORT_EVERY_S", -1.0)
    beats = [Record(i, 1000, None, b"beat") for i in range(20)]
    source = Log([stored(beats[8:]), marker(20, 99)], log_start=8)
    copied = [Record(r.offset + 1, r.timestamp, r.key, r.value) for r in beats[:6]]
    target = Log(
        [*(stored([record], producer_id=OURS) for record in copied), marker(7, OURS, 3)],
    )
    told: list[Walked] = []
    start = Start(0, 1, frozenset({OURS}))

    with pytest.raises(IntegrityError, match="equal records leave"):
        asyncio.run(resume(*readers(source, target), start, CLAIM, Comparison(), told.append))

    assert told
    assert not any(walked.settled for walked in told)


def test_a_partition_whose_long_walk_was_killed_is_walked_from_what_was_written_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its slot has written blocks and position once, in the middle; the next owner reads them."""
    monkeypatch.setattr(resuming, "_REPORT_EVERY_S", -1.0)
    source = many(10 * BATCH)
    target = log_of([Record(r.offset + 1, r.timestamp, r.key, r.value) for r in source], 0, OURS)
    assigned = AssignedPartition("T", 0, "A" * 21 + "g", "P.T", "B" * 21 + "g")
    copy = PartitionCopy(assigned, Start(0, 1, frozenset({OURS})))
    copy.begin_claiming()
    written: list[tuple[list[MapBlock], PartitionPosition, str]] = []

    def write(walked: Walked) -> None:
        copy.note_walk(CLAIM, walked)
        if walked.at > 5 * BATCH and not written:
            position = copy.position()
            written.append((copy.map.changed_blocks(position.position), position, copy.reason))

    asyncio.run(resume(*readers(log_of(source), target), Start(0, 1), CLAIM, Comparison(), write))

    [(blocks, position, reason)] = written
    assert reason == f"walking the logs: target offset {5 * BATCH + 1} of {target.end}"
    report = SlotReport("0", 1, 0, (position,))
    start = starts([assigned], blocks, [report])[assigned]
    assert (start.source_next, start.target_next) == (5 * BATCH, 5 * BATCH + 1)
    found = asyncio.run(resume(*readers(log_of(source), target), start, CLAIM, Comparison()))
    assert (found.source_next, found.target_next) == (10 * BATCH, 10 * BATCH + 2)
