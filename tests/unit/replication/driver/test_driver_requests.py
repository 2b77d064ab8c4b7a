"""A driver ends when it is asked to by a record, and says so."""

from __future__ import annotations

import threading

from tests.unit.replication.driving import Lab
from tests.waiting import DEADLINE_S, eventually

from srm.domain.flow_state.replication_records import (
    DRIVER_KEY,
    REQUEST_KEY,
    DriverHeartbeat,
    DriverRequest,
)


def asked(lab: Lab, name: str, action: str = "restart") -> None:
    request = DriverRequest(name, action, "somebody", 0)
    lab.topic.append(REQUEST_KEY, request.value())


def last_heartbeat(lab: Lab) -> DriverHeartbeat:
    beats = [r.value for r in lab.topic.records if r.key == DRIVER_KEY]
    return DriverHeartbeat.decode(beats[-1] or b"")


def test_a_request_ends_the_application_and_the_last_heartbeat_says_so_after_its_slots(lab):
    """Whoever asked sees by the record that nothing copies any more."""
    driver = lab.driver()
    stop, slots_ended = threading.Event(), threading.Event()
    thread = threading.Thread(target=driver.run, args=(stop, slots_ended.wait))
    thread.start()
    eventually(lambda: lab.topic.epoch == 2, "run has opened the log")

    asked(lab, "r1")
    assert stop.wait(DEADLINE_S), "it ends the other flows of the application, too"
    before = last_heartbeat(lab)
    slots_ended.set()
    thread.join(DEADLINE_S)

    assert not before.ended
    assert last_heartbeat(lab).ended
    assert driver.obeyed is not None
    assert driver.obeyed.request == "r1"


def test_a_request_does_not_end_a_driver_that_started_after_it(lab):
    asked(lab, "r1")
    driver = lab.driver()

    for _ in range(3):
        lab.second(driver, "0", "1")

    assert driver.obeyed is None
    assert last_heartbeat(lab).started_after == "r1"


def test_a_request_that_came_while_the_application_started_is_meant_for_it(lab):
    """It has read its settings already; Spark takes its time before the log is opened."""
    asked(lab, "r1")
    driver = lab.driver("starting", opened=False)

    driver.run(threading.Event(), begin=lambda: asked(lab, "r2"))

    assert (last_heartbeat(lab).driver, last_heartbeat(lab).ended) == ("starting", True)


def test_a_request_that_came_during_an_outage_is_obeyed_after_it(lab):
    driver = lab.driver()
    lab.second(driver, "0", "1")

    asked(lab, "r1", "stop")
    driver._open(again=True)

    assert driver.obeyed is not None
    assert driver.obeyed.action == "stop"


def test_a_damaged_request_ends_nothing(lab):
    """It would end each driver that is started, for ever."""
    driver = lab.driver()
    lab.topic.append(REQUEST_KEY, b"?")
    request = DriverRequest("r", "stop", "x", 0).value()
    lab.topic.append(REQUEST_KEY, request.replace(b"stop", b"explode"))

    lab.second(driver, "0", "1")

    assert driver.obeyed is None


def test_a_fenced_driver_does_not_say_that_its_successor_has_ended(lab):
    older = lab.driver("older")
    newer = lab.driver("newer")
    lab.second(newer)

    older._sign_off()

    assert (last_heartbeat(lab).driver, last_heartbeat(lab).ended) == ("newer", False)


def test_a_driver_whose_first_record_fails_does_not_take_its_dead_predecessor_for_a_successor(
    lab, monkeypatch
):
    monkeypatch.setattr("srm.replication.driver.driver.RETRY_S", 0.01)
    lab.second(lab.driver("dead"))
    driver, stop = lab.driver("living", opened=False), threading.Event()
    driver.log.broken = True
    thread = threading.Thread(target=driver.run, args=(stop,), daemon=True)
    thread.start()

    eventually(lambda: last_heartbeat(lab).driver == "living", "it drives")
    stop.set()
    thread.join(DEADLINE_S)
