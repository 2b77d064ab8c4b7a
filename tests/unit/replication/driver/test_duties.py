"""The driver in charge emits checkpoints, syncs groups and topics by itself."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.engine.conftest import (  # noqa: F401 -- fixtures
    TwoSites,
    new_sites,
    sites,
    two_site_configs,
)
from tests.unit.replication.driving import Lab
from tests.waiting import DEADLINE_S, eventually

from srm.domain.flow_state.replication_records import DUTIES, DriverHeartbeat
from srm.errors import UnavailableError
from srm.logs import Troubles
from srm.replication.driver import duties as duties_module
from srm.replication.driver.driver import FlowDriver
from srm.replication.driver.duties import keep, keep_topics
from srm_lab.testing.fake_cluster import FakeRights


class Charge:
    """The part of a driver that its duties see."""

    def __init__(self, *, in_charge: bool = True) -> None:
        self.is_in_charge = in_charge
        self.duties: frozenset[str] = frozenset(DUTIES)
        self.progress = SimpleNamespace(duty_troubles=Troubles("P->B"))

    def as_driver(self) -> FlowDriver:
        return cast("FlowDriver", self)


@pytest.fixture
def charge() -> Charge:
    return Charge()


def test_remote_topics_follow_their_sources(sites: TwoSites, charge: Charge) -> None:  # noqa: F811
    sites.clusters["P"].create_partitions({"Payments": 3})
    stop = threading.Event()
    given = charge.as_driver(), lambda: sites.flow("P->B"), stop
    work = threading.Thread(target=keep_topics, args=given, daemon=True)
    work.start()

    eventually(lambda: sites.clusters["B"].topics()["P.Payments"].partitions == 3, "it has grown")
    stop.set()
    work.join(DEADLINE_S)


def test_while_a_topic_fails_only_that_one_is_compared_again(
    sites: TwoSites,  # noqa: F811
    charge: Charge,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One refused topic of thousands: all of them were read again every 15 s."""
    source, target, read = sites.clusters["P"], sites.clusters["B"], list[list[str]]()
    sites.change("P->B", topics=(".*",))
    source.add_topic("Orders")
    settings_of = source.topic_settings
    monkeypatch.setattr(source, "topic_settings", lambda t: read.append([*t]) or settings_of(t))
    target.rights.take("Create", "P.Orders")
    stop = threading.Event()
    given = charge.as_driver(), lambda: sites.flow("P->B"), stop
    work = threading.Thread(target=keep_topics, args=given, daemon=True)
    work.start()

    eventually(lambda: len(read) > 2, "it is tried again")
    target.rights = FakeRights()
    eventually(lambda: "P.Orders" in target.topics(), "it is created")
    stop.set()
    work.join(DEADLINE_S)
    assert "Payments" in read[0]
    assert {*map(tuple, read[1:])} == {("Orders",)}


class Steps:
    """A duty that fails as long as it is told to."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.done = 0

    def __call__(self) -> float:
        self.done += 1
        if self.failure is not None:
            raise self.failure
        return 0.001


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(duties_module, "IDLE_S", 0.001)
    stop, threads = threading.Event(), list[threading.Thread]()

    def start(charge: Charge, steps: Steps) -> None:
        given = (charge.as_driver(), "the duty", steps, stop)
        threads.append(threading.Thread(target=keep, args=given, daemon=True))
        threads[0].start()

    yield start
    stop.set()
    threads[0].join(DEADLINE_S)


@pytest.mark.parametrize("failure", [UnavailableError("P does not answer"), ValueError("a bug")])
def test_a_failure_is_reported_once_and_tried_again_until_it_works(
    run: Any, charge: Charge, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    steps, troubles = Steps(), charge.progress.duty_troubles
    steps.failure = failure
    run(charge, steps)

    eventually(lambda: steps.done > 1 and troubles, "it is tried again")
    assert caplog.text.count("the duty fails and is tried again: ") == 1

    steps.failure = None
    eventually(lambda: not troubles, "it works")
    assert caplog.text.count("the duty works again") == 1


def test_a_driver_that_is_not_in_charge_does_nothing(run: Any, charge: Charge) -> None:
    steps = Steps()
    charge.is_in_charge = False
    run(charge, steps)
    threading.Event().wait(0.05)
    assert steps.done == 0

    charge.is_in_charge = True
    eventually(lambda: steps.done, "it is done by the driver in charge")


def test_a_driver_is_in_charge_from_its_record_on_and_not_after_a_suspension() -> None:
    lab = Lab()
    driver = lab.driver()
    assert not driver.is_in_charge

    lab.second(driver)
    assert driver.is_in_charge

    lab.now += 60
    assert not driver.is_in_charge, "another one may have taken over"


def test_a_heartbeat_names_duties_and_which_of_them_fail() -> None:
    lab = Lab()
    driver = lab.driver()
    driver.duties = frozenset({"topics", "checkpoints"})
    driver.progress.duty_troubles.report("topic sync", UnavailableError("P does not answer"))
    lab.second(driver)

    beat = DriverHeartbeat.decode(lab.topic.records[-1].value or b"")

    assert beat.duties == ("checkpoints", "topics")
    [trouble] = beat.troubles
    assert trouble.startswith("topic sync: P does not answer, ")
    assert "topic sync: P does not answer, " in driver.progress.snapshot().trouble
    assert driver.progress.troubles.first is None, "it keeps the flow from nothing"
