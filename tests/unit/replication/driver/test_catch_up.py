from __future__ import annotations

import pytest
from tests.seconds import Seconds

from srm.domain.flow_state.replication_records import (
    AssignedPartition,
    PartitionPosition,
    PartitionStatus,
)
from srm.domain.offset_map.offset_map import Position
from srm.errors import AuthorizationError, ConflictError, DataLossError, UnavailableError
from srm.replication.driver import flow_run
from srm.replication.driver.discovery import Discovered
from srm.replication.driver.flow_run import CatchUp
from srm.replication.driver.state_book import ProgressBook
from srm_lab.testing.fake_cluster import FakeCluster

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class Driver:
    """The two things a CatchUp asks of a driver."""

    def __init__(self) -> None:
        self.progress = ProgressBook("P->B", ["0"])
        self.discovered: Discovered | None = None

    def finds(self, partitions: int, pending: tuple[str, ...] = ()) -> None:
        found = tuple(
            AssignedPartition("orders", n, TOPIC_ID, "P.orders", "t") for n in range(partitions)
        )
        self.progress.set_partitions(found)
        self.discovered = Discovered(found, pending)

    def reports(self, *source_next: int, slot: str = "0", epoch: int = 0) -> None:
        positions = tuple(
            PartitionPosition(TOPIC_ID, n, "t", Position(at, at, at), 1, epoch)
            for n, at in enumerate(source_next)
        )
        self.progress.positions((1, slot.encode()), positions)


@pytest.fixture
def source() -> FakeCluster:
    cluster = FakeCluster("P")
    cluster.add_topic("orders", 2)
    cluster.produce("orders", 0, 10)
    return cluster


def test_it_is_done_when_every_partition_with_records_has_reached_its_end(source):
    driver = Driver()
    goal = CatchUp(driver, source)

    undiscovered = goal.done()
    driver.finds(2)
    unreported = goal.done()
    driver.reports(9)
    behind = goal.done()
    driver.reports(10)

    assert (undiscovered, unreported, behind) == (False, False, False)
    assert goal.done()


def test_a_partition_that_has_changed_its_slot_is_as_far_as_its_new_slot_says(source):
    driver = Driver()
    driver.finds(2)
    goal = CatchUp(driver, source)
    driver.reports(4, slot="0", epoch=0)
    goal.done()

    driver.reports(10, slot="1", epoch=1)
    driver.reports(4, slot="0", epoch=0)  # the slot it has left repeats where it stood

    assert goal.done()
    progress = driver.progress.snapshot()
    assert (progress.reported, progress.lag, progress.records) == (1, 0, 5)


def test_a_partition_that_a_new_claim_takes_back_is_not_as_far_as_its_former_slot_said(source):
    driver = Driver()
    driver.finds(2)
    goal = CatchUp(driver, source)
    driver.reports(10, slot="0", epoch=0)
    driver.reports(6, slot="1", epoch=1)  # an unclean election has lost what was copied after it

    assert not goal.done()


def test_records_that_come_later_are_not_waited_for(source):
    driver = Driver()
    driver.finds(2)
    goal = CatchUp(driver, source)
    goal.done()

    source.produce("orders", 0, 5)
    source.produce("orders", 1, 5)
    driver.reports(10)

    assert goal.done()


def test_a_flow_that_selects_nothing_is_done_at_once(source):
    driver = Driver()
    driver.finds(0)

    assert CatchUp(driver, source).done()


def test_a_topic_that_is_deleted_in_between_is_not_waited_for(source):
    driver = Driver()
    driver.finds(2)
    goal = CatchUp(driver, source)
    goal.done()

    driver.finds(0)

    assert goal.done()


@pytest.mark.parametrize(("lost_from", "error"), [(None, ConflictError), (3, DataLossError)])
def test_what_has_stopped_for_good_ends_the_wait_with_its_reason(source, lost_from, error):
    driver, clock = Driver(), Seconds(0)
    driver.finds(2)
    goal = CatchUp(driver, source, clock)
    status = PartitionStatus("orders", 0, "stopped", "orders-0: too large", lost_from, lost_from)
    driver.progress.status(status)

    first = goal.done()
    clock.now = flow_run.STUCK_S + 1

    assert not first
    with pytest.raises(error, match="cannot catch up: orders-0: too large"):
        goal.done()


@pytest.mark.parametrize("error", [AuthorizationError, UnavailableError])
def test_a_flow_that_cannot_start_ends_the_wait_with_what_keeps_it(source, error):
    driver, clock = Driver(), Seconds(0)
    goal = CatchUp(driver, source, clock)
    driver.progress.troubles["the driver"] = error("B refuses")

    first = goal.done()
    clock.now = flow_run.STUCK_S + 1

    assert not first
    with pytest.raises(error, match="cannot catch up: B refuses"):
        goal.done()


def test_trouble_of_a_flow_that_has_caught_up_is_not_waited_for(source):
    driver = Driver()
    driver.finds(2)
    driver.reports(10)
    driver.progress.troubles["the driver"] = UnavailableError("B does not answer")

    assert CatchUp(driver, source).done()


def test_a_partition_that_stops_and_goes_on_does_not_end_the_wait(source):
    driver, clock = Driver(), Seconds(0)
    driver.finds(2)
    goal = CatchUp(driver, source, clock)
    for second in range(0, 200, 20):
        clock.now = float(second)
        state = "stopped" if second % 40 else "copying"
        driver.progress.status(PartitionStatus("orders", 0, state, "leader moves"))

        assert not goal.done()


def test_trouble_of_a_flow_that_still_copies_does_not_end_the_wait(source):
    driver, clock = Driver(), Seconds(0)
    driver.finds(2)
    goal = CatchUp(driver, source, clock)
    driver.progress.troubles["discovery of topics"] = UnavailableError("P is slow")
    for at in range(1, 9):
        clock.now += flow_run.STUCK_S / 2
        driver.reports(at)

        assert not goal.done()


def test_a_remote_topic_that_cannot_be_created_ends_the_wait(source):
    driver, clock = Driver(), Seconds(0)
    driver.finds(0, pending=("orders",))
    goal = CatchUp(driver, source, clock)

    first = goal.done()
    clock.now = flow_run.STUCK_S + 1

    assert not first
    with pytest.raises(ConflictError, match="remote topics of orders cannot be created"):
        goal.done()


@pytest.mark.parametrize(
    "reports",
    [
        [(0, -1, -1), (0, 1, 0), (10, 1, 0)],
        [(10, 1, 0)],
        [(0, -1, -1), (11, 1, 1)],
        [(0, 1, 0), (4, 1, 0), (11, 1, 1)],
    ],
    ids=["in order", "late", "with a marker", "taken over"],
)
def test_markers_of_claims_are_not_counted_as_records(
    reports: list[tuple[int, int, int]],
) -> None:
    assigned = AssignedPartition("orders", 0, TOPIC_ID, "P.orders", "t")
    book = ProgressBook("P->B", ["0"])
    book.set_partitions([assigned], {assigned: 0})

    for at, *claim in reports:
        entry = PartitionPosition(*assigned.copy_id, Position(at, at, 10), *claim)
        book.positions((1, b"0"), (entry,))

    assert book.snapshot().records == 10
