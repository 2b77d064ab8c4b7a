"""A partition that a slot gives up and takes on again before its next report."""

from __future__ import annotations

import pytest
from tests.unit.replication.mapping import map_world
from tests.unit.replication.report.test_reporting import (
    ASSIGNED,
    MAP,
    STATE,
    copied,
    copying,
    reporter_to,
)

from srm.domain.flow_state.replication_records import PartitionPosition
from srm.domain.flow_state.replication_state import decode_state, newest_position, positions_by_copy
from srm.domain.offset_map.offset_map import Run
from srm.replication.mapping.starts import Start
from srm.replication.partition import PartitionCopy
from srm_lab.testing.fake_compacted import FakeStateLog


def read(log: FakeStateLog) -> tuple[PartitionPosition, map_world.World]:
    """Return the newest position that can be read, and the topic that its map is in."""
    reports = positions_by_copy(decode_state(log.table(STATE)).reports)
    newest = newest_position(reports[ASSIGNED.copy_id])
    assert newest is not None
    rows = [(r.key, r.value) for r in log.records if r.place == MAP]
    return newest, map_world.World(dict(enumerate(rows)), report=(newest.position, newest.map_end))


@pytest.mark.parametrize("late", [False, True])
def test_a_position_proves_that_all_before_it_is_in_the_map(*, late: bool) -> None:
    log = FakeStateLog()
    reporter = reporter_to(log)
    former = copying()
    reporter.prepare([former])()
    known, world = read(log)
    again = PartitionCopy(ASSIGNED, Start(10, 10, frozenset({7}), tree=world.tree()))

    for first in (20, 30):
        copied(former, first, 5)
    former.leave()
    if late:
        log.unreachable = {MAP}
        reporter.prepare([], [former])()
        log.unreachable = set()
        reporter.prepare([again])()
    else:
        reporter.prepare([again], [former])()

    told, world = read(log)
    made = [Run(0, 0, 10), Run(20, 10, 5), Run(30, 15, 5)]
    before = [run for run in made if run.target_start < told.position.target_next]
    assert list(world.read().runs) == before
    assert told.position.source_next >= known.position.source_next
