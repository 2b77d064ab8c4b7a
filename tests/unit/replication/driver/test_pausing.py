"""A flow that is paused: no slot keeps anything, no driver gives anything out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest
from tests.unit.replication.driving import STATE, Lab, MemoryLog, found, held
from tests.waiting import DEADLINE_S

from srm.domain.flow_state.replication_records import (
    COMMANDS,
    PAUSE_KEY,
    AssignedPartition,
    PartitionStatus,
    Pause,
    read_pause,
)
from srm.errors import ConflictError, FencedError, UnavailableError
from srm.replication.driver import pausing
from srm.replication.driver.driver import FlowDriver
from srm.replication.driver.pausing import leave, pause, resume
from srm.replication.driver.state_book import LogRecord

WORST_DAY = Pause("r1", "ann@laptop", "unplanned failover m1", 1, "m1")


REBUILT = (AssignedPartition("orders", 0, "B" * 21 + "g", "P.orders", "C" * 21 + "g"),)


def paused(lab: Lab, wanted: Pause = WORST_DAY) -> None:
    pause(MemoryLog(lab.topic), wanted)


def test_a_pause_takes_everything_from_all_slots_at_once(lab):
    driver = lab.driver()
    driver.discovered = found("orders")
    lab.second(driver, "0", "1")
    before = lab.topic.assignments()

    paused(lab)

    after = lab.topic.assignments()
    assert held(lab) == {"0": [], "1": []}
    assert {a.generation for a in after.values()} == {before["0"].generation + 1}
    assert read_pause({r.key: r.value for r in lab.topic.records if r.value}) == WORST_DAY


def test_a_driver_that_has_not_heard_of_the_pause_can_give_out_nothing(lab):
    driver = lab.driver()
    driver.discovered = found("orders")
    lab.now += 1
    lab.beat("0")
    lab.beat("1")

    paused(lab)

    with pytest.raises(FencedError):
        driver._step()
    assert held(lab) == {}


@pytest.mark.parametrize("name", ["first", "a driver that starts later"])
def test_no_driver_gives_anything_out_until_the_flow_is_resumed(lab, name):
    driver = lab.driver("first")
    driver.discovered = found("orders")
    lab.second(driver, "0", "1")
    paused(lab)

    later = lab.driver(name)
    later.discovered = found("orders", "more")
    for _ in range(9):
        lab.second(later, "0", "1")
    kept = held(lab)
    resume(MemoryLog(lab.topic))
    later._open(again=True, fenced=FencedError("by who resumes it"))
    lab.second(later, "0", "1")

    assert kept == {"0": [], "1": []}
    assert sum(map(len, held(lab).values())) == 4


def test_an_application_survives_the_pause_and_the_end_of_the_pause_of_one_of_its_flows(lab):
    driver = lab.driver()
    stop = threading.Event()
    thread = threading.Thread(target=driver.run, args=(stop,))
    thread.start()
    try:
        for change in (paused, lambda at: resume(MemoryLog(at.topic))):
            epoch = lab.topic.epoch
            change(lab)
            while lab.topic.epoch < epoch + 2:  # who paused it, and the driver again
                lab.now += 0.5
                assert thread.is_alive()
                stop.wait(0.01)
    finally:
        stop.set()
        thread.join(DEADLINE_S)

    assert not thread.is_alive()


def test_a_driver_that_another_one_has_fenced_ends_when_that_one_gives_a_sign_of_life(lab):
    older = lab.driver("older")
    paused(lab)
    older._open(again=True, fenced=FencedError("paused"))
    newer = lab.driver("newer, and it has not said so yet")
    after(lab, older, 2, newer._step)

    with pytest.raises(FencedError, match="another replicator"):
        older._open(again=True, fenced=FencedError("fenced"))


def test_a_driver_survives_one_who_fences_it_and_pauses_the_flow_only_then(lab):
    """Whoever pauses reads the log in between: the driver may look before the pause is there."""
    driver = lab.driver()
    driver.discovered = found("orders")
    lab.second(driver, "0", "1")
    MemoryLog(lab.topic).fence()
    after(lab, driver, 2, lambda: paused(lab))

    driver._open(again=True, fenced=FencedError("by who pauses it"))
    lab.second(driver, "0", "1")

    assert held(lab) == {"0": [], "1": []}


def test_a_driver_survives_one_who_fences_it_and_dies_before_its_first_word(lab):
    driver = lab.driver()
    driver.discovered = found("orders")
    MemoryLog(lab.topic).fence()
    after(lab, driver, 2, lambda: None)

    driver._open(again=True, fenced=FencedError("by who was killed"))
    lab.second(driver, "0", "1")

    assert sum(map(len, held(lab).values())) == 2


def test_a_driver_that_is_stopped_does_not_wait_for_the_word_of_who_fenced_it(lab):
    driver = lab.driver()
    lab.driver("newer, and it has not said so yet")
    stop = threading.Event()
    after(lab, driver, 2, stop.set)

    with pytest.raises(FencedError, match="fenced"):
        driver._open(again=True, fenced=FencedError("fenced"), stop=stop)


def after(lab: Lab, driver: FlowDriver, polls: int, act: Callable[[], None]) -> None:
    """Let something happen while a driver waits; the time of its laboratory passes."""
    log, polled = driver.log, count(1)
    poll = log.poll

    def wait(timeout_s: float) -> list[LogRecord]:
        lab.now += timeout_s
        if next(polled) == polls:
            act()
        return poll(timeout_s)

    log.poll = wait


def test_a_pause_that_cannot_be_read_is_a_pause(lab):
    driver = lab.driver()
    driver.discovered = found("orders")
    lab.topic.append(PAUSE_KEY, b"{", STATE)

    for _ in range(5):
        lab.second(driver, "0", "1")

    assert not any(held(lab).values())
    found_pause = read_pause({PAUSE_KEY: b"{"})
    assert found_pause is not None
    assert "cannot be read" in found_pause.reason


def test_a_slot_whose_assignment_is_damaged_is_told_to_copy_nothing_too(lab):
    lab.topic.append(b"assignment:7", b"{")
    lab.beat("7", generation=41)

    paused(lab)

    [told] = lab.topic.assignments().values()
    assert (told.slot, told.partitions) == ("7", ())
    assert told.generation > 41


def test_a_paused_driver_notes_no_topic_as_copied_and_deletes_nothing(lab):
    driver = lab.driver()
    driver.discovered = found("orders")
    lab.second(driver, "0", "1")
    left = lab.tell("9", name="left")  # of a slot that is no more: deleted at other times
    paused(lab)
    driver._open(again=True, fenced=FencedError("paused"))
    driver.discovered = replace(found("orders"), partitions=REBUILT)

    for _ in range(9):
        lab.second(driver, "0", "1")

    copied = [key for key in lab.topic.standing(COMMANDS) if key.startswith(b"copied:")]
    assert len(copied) == 1
    assert left in lab.topic.standing()

    resume(MemoryLog(lab.topic))
    driver._open(again=True, fenced=FencedError("resumed"))
    for _ in range(9):
        lab.second(driver, "0", "1")
    copied = [key for key in lab.topic.standing(COMMANDS) if key.startswith(b"copied:")]
    assert len(copied) == 2


def test_the_progress_of_a_paused_flow_names_the_pause_and_nothing_that_stopped_before(lab):
    """'STOPPED 7' was in the replicator's lines for as long as the pause lasted, and no reason."""
    driver = lab.driver()
    driver.progress.status(PartitionStatus("orders", 0, "stopped", "P does not answer"))
    driver.progress.troubles.report("discovery", UnavailableError("P does not answer"))

    paused(lab)
    driver._open(again=True, fenced=FencedError("paused"))

    shown = driver.progress.snapshot()
    assert (shown.stopped, shown.trouble) == ((), f"paused: {WORST_DAY.reason}")
    resume(MemoryLog(lab.topic))
    driver._open(again=True, fenced=FencedError("resumed"))
    assert len(driver.progress.snapshot().stopped) == 1


def test_what_is_decided_and_the_end_of_the_pause_are_one_transaction(lab):
    paused(lab)
    log = MemoryLog(lab.topic)
    log.broken = True

    with pytest.raises(UnavailableError):
        resume(log, {b"notes:keep-1:orders-0": b"{}"})
    assert lab.topic.standing(COMMANDS) == [PAUSE_KEY]
    resume(log, {b"notes:keep-1:orders-0": b"{}"})

    assert lab.topic.standing(COMMANDS) == [b"notes:keep-1:orders-0"]


def test_moves_that_give_up_the_same_source_share_one_pause(lab):
    paused(lab)
    paused(lab, replace(WORST_DAY, request="r2", by="bob", move_id="m2"))
    paused(lab, replace(WORST_DAY, request="r3", by="bob", move_id="m2"))
    both = replace(WORST_DAY, request="r3", joined=("m2",))
    assert standing(lab) == both
    assert Pause.decode(both.value()) == both

    leave(MemoryLog(lab.topic), "m1")
    assert standing(lab).moves == ("m2",)
    leave(MemoryLog(lab.topic), "m1")
    leave(MemoryLog(lab.topic), "m2")
    assert standing(lab) is None


def test_a_pause_is_renewed_only_while_the_one_that_is_meant_stands(lab):
    renewed = replace(WORST_DAY, request="r2")
    with pytest.raises(ConflictError, match="has ended: look"):
        pause(MemoryLog(lab.topic), renewed, "r1")
    paused(lab)
    with pytest.raises(ConflictError, match="paused again by"):
        pause(MemoryLog(lab.topic), replace(WORST_DAY, request="r3"), "r2")

    pause(MemoryLog(lab.topic), renewed, "r1")

    with pytest.raises(ConflictError, match="paused again by"):
        resume(MemoryLog(lab.topic), {}, "r1")
    assert resume(MemoryLog(lab.topic), {}, "r2")


def test_only_the_pause_that_is_meant_ends(lab):
    paused(lab)
    paused(lab, replace(WORST_DAY, request="r2", move_id="m2"))

    with pytest.raises(ConflictError, match="paused again by ann"):
        resume(MemoryLog(lab.topic), {b"notes:n": b"{}"}, "r1")
    assert resume(MemoryLog(lab.topic), {b"notes:n": b"{}"}, "r2")
    assert not resume(MemoryLog(lab.topic), {b"notes:late": b"{}"}, "r2")

    assert lab.topic.standing(COMMANDS) == [b"notes:n"]


def standing(lab: Lab) -> Pause | None:
    return pausing.pause_in(MemoryLog(lab.topic).read())


class LateLog(MemoryLog):
    """Readers see what is committed only when they ask for the third time."""

    asked = 0

    def poll(self, timeout_s: float) -> list[LogRecord]:
        self.asked += 1
        return super().poll(timeout_s) if self.asked == 3 else []


@pytest.mark.parametrize(
    "act",
    [lambda log: pause(log, WORST_DAY), resume, lambda log: leave(log, "m1")],
    ids=["pause", "resume", "leave"],
)
def test_who_is_told_that_a_flow_is_paused_or_resumed_reads_it_so(lab, act, monkeypatch):
    paused(lab)
    log = LateLog(lab.topic)
    act(log)
    assert log.asked == 3

    paused(lab)
    monkeypatch.setattr(pausing, "_SEEN_S", 0.0)
    with pytest.raises(UnavailableError, match="repeat"):
        act(LateLog(lab.topic))
