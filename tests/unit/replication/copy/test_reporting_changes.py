"""What a slot looks at and tells again: only what has changed, and what stands nowhere never."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.seconds import Seconds, own_seconds
from tests.unit.replication.copy.reporters import (
    ASSIGNED,
    MAP,
    copied,
    copying,
    positions,
    reporter_to,
    told,
)

from srm.domain.flow_state.replication_records import PartitionPosition
from srm.domain.offset_map.map_records import RUNS_PER_BLOCK, MapEnd
from srm.domain.offset_map.offset_map import Run
from srm.replication.mapping.starts import Start
from srm.replication.partition import PartitionCopy, Phase, Stop
from srm.replication.ports import ProducerId
from srm_lab.testing.fake_compacted import FakeStateLog


@pytest.fixture
def seconds() -> Iterator[Seconds]:
    with own_seconds() as time:
        yield time


class Counted(PartitionCopy):
    """Counts how often its position is told."""

    looks = 0

    def position(self) -> PartitionPosition:
        self.looks += 1
        return super().position()


def counted(number: int) -> Counted:
    copy = Counted(replace(ASSIGNED, partition=number), Start(0, 0))
    copy.map.begin_claim(ProducerId(7, 1))
    copied(copy, 0, 10)
    return copy


def test_what_has_not_changed_is_looked_at_only_each_half_minute(seconds: Seconds) -> None:
    reporter, copies = reporter_to(FakeStateLog()), [counted(number) for number in range(3)]
    reporter.prepare(copies)()

    def looks() -> list[int]:
        before = [copy.looks for copy in copies]
        seconds.now += 1
        reporter.prepare(copies)()
        return [copy.looks - looked for copy, looked in zip(copies, before, strict=True)]

    assert looks() == [0, 0, 0]
    copied(copies[0], 10, 5)
    copies[2].rest(Phase.STOPPED, Stop("a reason"))
    assert looks() == [1, 0, 1]
    assert looks() == [0, 0, 0]
    seconds.now += 30
    assert looks() == [1, 1, 1]
    reporter.report_everything()
    assert looks() == [1, 1, 1]


def test_an_end_of_a_map_that_moves_is_told_though_its_position_stays_the_same() -> None:
    """Blocks below the logs' starts go after a report, and then their entries from the index."""
    log = FakeStateLog()
    reporter, copy = reporter_to(log), copying()
    runs = [Run(20 * number, 15 * number, 10) for number in range(1, 3 * RUNS_PER_BLOCK + 2)]
    copy.map.add(runs)
    copy.source_next, copy.target_next = runs[-1].source_end, runs[-1].target_end
    reporter.prepare([copy])()
    copy.map.source_log_start = copy.map.target_log_start = copy.target_next // 2

    ends = set[MapEnd | None]()
    for _ in range(4):
        reporter.prepare([copy])()
        ends |= {entry.map_end for entry in positions(log)}

    assert len(ends) > 1
    assert {entry.map_end for entry in positions(log)} == {copy.map.index.end}


def test_a_position_that_waits_is_not_told_once_its_partition_stands_nowhere() -> None:
    """Its map would not be there: what has come back begins at what was told."""
    log = FakeStateLog()
    log.unreachable = {MAP}
    reporter, copy = reporter_to(log), copying()
    reporter.prepare([copy])()
    again = PartitionCopy(copy.assigned, Start(0, 0, has_position=False))

    log.unreachable = set()
    reporter.prepare([again])()
    reporter.prepare([again])()

    assert told(log) == {}
