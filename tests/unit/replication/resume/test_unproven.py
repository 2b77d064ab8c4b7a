"""A position that nobody has proven yet is told to nobody: the next owner would build on it."""

from __future__ import annotations

import pytest
from tests.batches import Record, marker, stored
from tests.unit.replication.copy.claim_site import ASSIGNED, Cluster, Site, run
from tests.unit.replication.resume.two_logs import OURS, walked

from srm.domain.flow_state.replication_records import REPORTS, Incarnation, PartitionPosition
from srm.domain.flow_state.replication_state import decode_state
from srm.domain.names import internal_topics
from srm.domain.offset_map.map_tree import RebuiltMap
from srm.errors import IntegrityError
from srm.replication.claim import Claim
from srm.replication.mapping.starts import KnownMap, Start, start_of
from srm.replication.partition import Phase
from srm.replication.ports import ProducerId
from srm.replication.report import Reporter
from srm.replication.resume.source_lookahead import Comparison
from srm_lab.testing.fake_compacted import FakeStateLog
from srm_lab.testing.flows import flow_config

STATE = internal_topics.replication("P"), REPORTS
FIRST = Claim(ProducerId(OURS, 1), float("inf"))
LOST_STATE = Start(0, 0, fresh=True, has_position=False)


def told_by(site: Site) -> list[PartitionPosition]:
    """Return the positions that the slot's next report tells."""
    log = FakeStateLog()
    reporter = Reporter(flow_config(), "0", log, FakeStateLog(), lambda: 0)
    reporter.begin(Incarnation(1, "a"))
    reporter.prepare([site.copy])()
    reports = decode_state(log.table(STATE)).reports
    return [entry for report in reports for entry in report.positions]


def equal_records(count: int) -> list[Record]:
    return [Record(i, 1, None, b"same") for i in range(count)]


def copied_and_trimmed() -> Cluster:
    """Return a target with copies of ten equal records, of which retention has left five."""
    copies = [stored([Record(1 + i, 1, None, b"same")], producer_id=OURS) for i in range(10)]
    target = Cluster([marker(0, OURS, 0), *copies], [ProducerId(OURS, 1), ProducerId(OURS, 2)])
    target.start = 6
    return target


def test_a_process_that_has_proven_nothing_leaves_the_next_one_nothing_to_build_on() -> None:
    source, target = Cluster([stored(equal_records(10))]), copied_and_trimmed()
    found: list[PartitionPosition] = []

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, LOST_STATE)
        await site.until(lambda: site.copy.target_next == target.start)
        site.lifecycle.claim(site.copy)
        await site.until(lambda: site.copy.phase is Phase.STOPPED)
        found.extend(told_by(site))

    site = run(lambda: Site(source, target), scenario)
    assert "undecidable" in site.copy.reason

    successor = start_of(KnownMap(RebuiltMap()), found) or LOST_STATE
    with pytest.raises(IntegrityError, match="undecidable"):
        walked(source, target, successor, Comparison(), FIRST)


def test_where_the_target_never_held_anything_the_start_is_proven_and_told() -> None:
    source = Cluster([stored(equal_records(3))])
    target = Cluster([])

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, None)
        await site.until(lambda: site.copy.has_position)
        [entry] = told_by(site)
        assert (entry.position.source_next, entry.position.target_next) == (0, 0)

    run(lambda: Site(source, target), scenario)
    assert target.claimed == 0
