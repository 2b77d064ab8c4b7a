"""Two live processes of one slot id: the one that started last is meant, wherever its driver is."""

from __future__ import annotations

import pytest
from tests.unit.replication.driving import FIRST, Lab, found

from srm.domain.flow_state.replication_records import Incarnation

SECOND = Incarnation(2, "00")


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_an_assignment_names_the_process_that_started_last(lab: Lab) -> None:
    driver = lab.driver()
    driver.discovered = found("orders")
    lab.second(driver, "0", "1")
    before = lab.topic.assignments()["0"]
    assert before.incarnation == FIRST

    lab.beat("0", SECOND)
    lab.second(driver, "0", "1")  # the former process still reports

    after = lab.topic.assignments()
    assert (after["0"].incarnation, after["0"].partitions) == (SECOND, before.partitions)
    assert after["0"].generation > before.generation
    assert after["1"].incarnation == FIRST


def test_an_older_process_that_reports_on_changes_nothing_and_keeps_no_slot_alive(lab: Lab) -> None:
    driver = lab.driver()
    driver.discovered = found("orders")
    lab.beat("0", SECOND)
    lab.second(driver, "0", "1")
    named = lab.topic.assignments()["0"]
    for _ in range(3):
        lab.second(driver, "0", "1")
    assert lab.topic.assignments()["0"] == named

    for _ in range(6):
        lab.second(driver, "0", "1")

    assert lab.topic.assignments()["0"].partitions == ()
    assert len(lab.topic.assignments()["1"].partitions) == 2


def test_an_assignment_whose_record_is_damaged_is_replaced_by_one_that_the_slot_takes(
    lab: Lab,
) -> None:
    lab.topic.append(b"assignment:0", b"damaged")
    lab.beat("0", generation=41)
    driver = lab.driver()
    driver.discovered = found("orders")

    lab.second(driver, "0", "1", generation=41)

    assert lab.topic.assignments()["0"].generation == 42


def test_the_next_driver_means_the_same_process_though_the_older_one_is_heard_first(
    lab: Lab,
) -> None:
    first = lab.driver("first")
    first.discovered = found("orders")
    lab.beat("0", SECOND)
    lab.second(first, "0", "1")

    second = lab.driver("second")
    second.discovered = found("orders")
    lab.second(second, "0", "1")
    lab.beat("0", SECOND)
    lab.second(second, "0", "1")

    assert lab.topic.assignments()["0"].incarnation == SECOND
