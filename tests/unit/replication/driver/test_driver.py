"""The driver's decisions over a state topic in memory and a clock that the test moves."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from tests.unit.replication.driving import (
    METRICS,
    RAW,
    TARGET_ID,
    TOPIC_ID,
    NoDiscovery,
    found,
    held,
)
from tests.waiting import DEADLINE_S, eventually

from srm.domain.flow_state.liveness_thresholds import SLOT_DEAD_S
from srm.domain.flow_state.replication_records import (
    DRIVER_KEY,
    AssignedPartition,
    DriverHeartbeat,
    PartitionPosition,
    PartitionStatus,
)
from srm.domain.metrics import encode_raw
from srm.domain.offset_map.offset_map import Position
from srm.errors import FencedError, UnavailableError
from srm.replication.driver.discovery import Discovered
from srm.replication.driver.driver import FOUND_S, LONGEST_POLL_S, POLL_S


def test_partitions_are_spread_once_all_slots_have_reported(lab):
    driver = lab.driver()
    driver.discovered = found("orders")

    lab.second(driver, "0")
    one_slot = held(lab)
    lab.second(driver, "0", "1")

    assert one_slot == {}
    assert held(lab) == {"0": ["orders-0"], "1": ["orders-1"]}


def test_a_slot_that_never_reports_is_given_up_after_the_grace(lab):
    driver = lab.driver()
    driver.discovered = found("orders")

    for _ in range(5):
        lab.second(driver, "0")

    assert held(lab) == {"0": ["orders-0", "orders-1"]}


def test_a_silent_slot_loses_its_partitions_in_the_transaction_that_gives_them_away(lab):
    driver = lab.driver()
    driver.discovered = found("orders")
    lab.second(driver, "0", "1")

    for _ in range(7):
        lab.second(driver, "0")

    assert held(lab) == {"0": ["orders-0", "orders-1"], "1": []}
    assert len({a.generation for a in lab.topic.assignments().values()}) == 1


def test_a_new_topic_changes_only_what_has_to_change(lab):
    driver = lab.driver(slots=2)
    driver.discovered = found("orders")
    lab.second(driver, "0", "1")
    before = lab.topic.assignments()

    driver.discovered = Discovered(
        (*found("orders").partitions, *found("new", partitions=1).partitions)
    )
    lab.second(driver, "0", "1")

    after = lab.topic.assignments()
    changed = [slot for slot in after if after[slot] != before[slot]]
    assert len(changed) == 1
    assert set(before[changed[0]].partitions) < set(after[changed[0]].partitions)


def test_without_a_change_nothing_but_heartbeats_is_written(lab):
    driver = lab.driver()
    driver.discovered = found("orders")
    lab.second(driver, "0", "1")
    mark = len(lab.topic.records)

    for _ in range(5):
        lab.second(driver, "0", "1")

    keys = {record.key for record in lab.topic.records[mark:]}
    assert keys == {DRIVER_KEY, b"slot:0:1-aa", b"slot:1:1-aa"}


def test_a_heartbeat_names_some_topics_without_a_complete_copy(lab):
    driver = lab.driver()
    driver.discovered = Discovered((), tuple(f"t{number}" for number in range(30)))
    lab.second(driver, "0", "1")

    [*_, beat] = [one.value for one in lab.topic.records if one.key == DRIVER_KEY]
    assert DriverHeartbeat.decode(beat).pending == driver.discovered.pending[:20]


def test_the_next_driver_keeps_the_assignment_and_goes_on_counting_generations(lab):
    first = lab.driver("first")
    first.discovered = found("orders", partitions=5)
    for _ in range(2):
        lab.second(first, "0", "1")
    before = lab.topic.assignments()

    second = lab.driver("second")
    second.discovered = found("orders", "more", partitions=5)
    for _ in range(2):
        lab.second(second, "0", "1")

    after = lab.topic.assignments()
    assert all(set(before[slot].partitions) < set(after[slot].partitions) for slot in before)
    assert min(a.generation for a in after.values()) > max(a.generation for a in before.values())


def test_the_older_driver_ends_when_it_writes(lab):
    older = lab.driver("older")
    lab.driver("newer")
    lab.now += 2.0

    with pytest.raises(FencedError, match="newer driver"):
        older._step()


def test_the_older_driver_ends_when_it_sees_the_newer_ones_heartbeat(lab):
    older = lab.driver("older")
    newer = lab.driver("newer")
    lab.now += 2.0
    newer._step()

    with pytest.raises(
        FencedError, match=r"P->B is driven by another replicator now .pid 1 on here"
    ):
        older._step()


def test_a_driver_that_was_away_does_not_fence_its_successor(lab):
    """After an outage the role is taken back only if nobody else has it."""
    away = lab.driver("away")
    successor = lab.driver("successor")
    lab.second(successor)

    with pytest.raises(FencedError, match="another replicator"):
        away._open(again=True)

    lab.second(successor)  # still the driver


def test_an_outage_of_the_target_ends_nothing_and_moves_nothing(lab):
    driver = lab.driver()
    driver.discovered = found("orders")
    lab.second(driver, "0", "1")
    before = lab.topic.assignments()

    driver.log.broken = True
    lab.now += 30.0
    with pytest.raises(UnavailableError):
        driver._step()
    driver._open(again=True)
    for _ in range(6):
        lab.second(driver, "0", "1")

    assert lab.topic.assignments() == before


def test_a_driver_that_does_not_hear_itself_opens_its_log_again(lab):
    """Its reader may have lost sight of the brokers for good while its producer has not."""
    driver = lab.driver()
    driver.discovered = found("orders")
    lab.second(driver, "0", "1")
    hears = driver.log.poll
    driver.log.poll = lambda _wait_s: []
    with pytest.raises(UnavailableError, match="does not read back"):
        [lab.second(driver, "0", "1") for _ in range(30)]

    driver.log.poll = hears
    driver._open(again=True)
    before = lab.topic.assignments()
    for _ in range(30):
        lab.second(driver, "0", "1")

    assert lab.topic.assignments() == before


def test_run_opens_the_log_again_after_an_outage_and_ends_on_stop(lab):
    driver = lab.driver()
    stop = threading.Event()
    driver.log.broken = True
    thread = threading.Thread(target=driver.run, args=(stop,))

    thread.start()
    while lab.topic.epoch < 3:  # opened by the lab, by run, and again after the failure
        lab.now += 0.5
        assert thread.is_alive()
        stop.wait(0.01)
    stop.set()
    thread.join(DEADLINE_S)

    assert not thread.is_alive()


def test_a_target_that_does_not_tell_its_log_ends_keeps_no_topic_waiting(lab):
    class Countless(NoDiscovery):
        def round(self) -> Discovered:
            return found("orders")

        def target_ends(self, partitions: object) -> dict[AssignedPartition, int]:
            del partitions
            raise UnavailableError("listing offsets on cluster B: no leader yet for P.orders-0")

    driver = lab.driver()
    driver.discovery = Countless()
    stop = threading.Event()
    thread = threading.Thread(target=driver.run, args=(stop,))

    thread.start()
    try:
        eventually(lambda: driver.discovered == found("orders"), "orders is discovered")
    finally:
        stop.set()
        thread.join(DEADLINE_S)


def test_byte_rates_from_raw_metrics_even_out_slots_that_carry_too_much(lab):
    driver = lab.driver()
    driver.discovered = found("orders", partitions=8)
    lab.second(driver, "0", "1")
    busy = lab.topic.assignments()["0"].partitions
    for assigned in found("orders", partitions=8).partitions:
        size = 10_000_000 if assigned in busy else 10
        metric = replace(RAW, topic=assigned.topic, partition=assigned.partition, bytes=size)
        [value] = encode_raw([metric])
        lab.topic.append(b"0", value, METRICS)
    lab.topic.append(b"m", b"not a metric", METRICS)
    driver.progress.set_partitions(driver.discovered.partitions)

    for _ in range(62):
        lab.second(driver, "0", "1")

    still = [p for p in lab.topic.assignments()["0"].partitions if p in busy]
    assert len(still) == 2


def test_progress_counts_records_and_lag_from_reports(lab):
    driver = lab.driver()
    driver.progress.set_partitions(found("orders").partitions)

    for target_next, source_end in ((10, 100), (70, 120)):
        position = Position(target_next, target_next, source_end)
        entry = PartitionPosition(TOPIC_ID, 0, TARGET_ID, position, 7, 0)
        lab.tell("0", entry)
        driver._step()

    progress = driver.progress.snapshot()
    assert (progress.records, progress.lag, progress.reported) == (60, 50, 1)
    goal = dict.fromkeys(found("orders").partitions, 70)
    assert [p.partition for p in driver.progress.behind(goal)] == [1]


def test_progress_names_the_partitions_that_slots_say_have_stopped(lab):
    driver = lab.driver()
    driver.progress.set_partitions(found("orders").partitions)
    status = PartitionStatus("orders", 1, "stopped", "records 3 to 9 are gone")
    lab.topic.append(status.key(), status.value())

    driver._step()

    assert driver.progress.snapshot().stopped == (status,)


def test_progress_counts_from_the_target_end_at_discovery_without_the_markers_of_claims(lab):
    """Each claim takes one target offset; a flow that is copied within a second counts as well."""
    driver = lab.driver()
    assigned = found("orders", partitions=1).partitions
    driver.progress.set_partitions(assigned, {assigned[0]: 100})

    for target_next, epoch in ((1101, 0), (1201, 0), (1302, 1)):
        position = Position(target_next, target_next, target_next)
        entry = PartitionPosition(TOPIC_ID, 0, TARGET_ID, position, 7, epoch)
        driver.progress.positions((1, b"slot:0:1-aa:0"), (entry,))

    assert driver.progress.snapshot().records == 1000 + 100 + 100


def test_the_log_is_polled_until_something_else_is_due(lab):
    """A heartbeat, the death of a slot, what a round of discovery may have found."""
    driver = lab.driver()
    lab.second(driver, "0", "1")
    lab.now += 0.1
    driver._next_round = lab.now + 0.2
    found_soon = driver._patience_s()
    driver._next_round = lab.now + 100
    nothing_is_due = driver._patience_s()
    driver._heartbeat_due = lab.now + 0.3
    heartbeat = driver._patience_s()
    driver._heartbeat_due = lab.now + 100
    lab.now += SLOT_DEAD_S - 0.3
    death = driver._patience_s()
    driver._next_round = lab.now - 1
    lab.now += 10

    assert found_soon == pytest.approx(0.2 + FOUND_S)
    assert nothing_is_due == LONGEST_POLL_S
    assert heartbeat == pytest.approx(0.3)
    assert death == pytest.approx(0.2, abs=0.01)
    assert driver._patience_s() == pytest.approx(POLL_S), "a round is under way"
