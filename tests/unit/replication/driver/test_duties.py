"""The driver in charge emits checkpoints, syncs groups and topics by itself; nobody else does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
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
from srm.domain.names import internal_topics
from srm.engine.control import control_lists
from srm.engine.control.compacted import ensure_compacted
from srm.engine.control.control_lists import ListChange
from srm.errors import UnavailableError
from srm.replication.driver import duties as duties_module
from srm.replication.driver.driver import FlowDriver
from srm.replication.driver.duties import GroupDuty, keep, keep_topics
from srm.replication.driver.progress import Troubles

GROUP = "billing"


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


def duty_of(sites: TwoSites, charge: Charge, now: Callable[[], float]) -> GroupDuty:  # noqa: F811
    return GroupDuty(charge.as_driver(), sites.flow("P->B"), now)


def emitted(sites: TwoSites) -> int:  # noqa: F811
    return len(sites.clusters["B"].compacted_topic("P.checkpoints.internal").read())


def test_checkpoints_come_at_their_interval_and_offsets_of_groups_after_them(
    sites: TwoSites,  # noqa: F811
    charge: Charge,
) -> None:
    sites.change("P->B", emit_checkpoints_interval=timedelta(seconds=60))
    sites.commit("P", GROUP, "Payments", 40)
    now = [0.0]
    duty = duty_of(sites, charge, lambda: now[0])

    assert duty.step() == 60
    assert (emitted(sites), sites.committed("B", GROUP, "P.Payments")) == (1, 41)

    sites.commit("P", GROUP, "Payments", 50)
    now[0] = 59.0
    assert duty.step() == 1
    assert sites.committed("B", GROUP, "P.Payments") == 41
    now[0] = 60.0
    duty.step()
    assert sites.committed("B", GROUP, "P.Payments") == 51


def test_offsets_of_groups_have_an_interval_of_their_own_if_that_is_set(
    sites: TwoSites,  # noqa: F811
    charge: Charge,
) -> None:
    sites.change(
        "P->B",
        emit_checkpoints_interval=timedelta(seconds=60),
        sync_group_offsets_interval=timedelta(seconds=10),
    )
    now = [0.0]
    duty = duty_of(sites, charge, lambda: now[0])
    duty.step()
    sites.commit("P", GROUP, "Payments", 40)
    now[0] = 10.0

    assert duty.step() == 10
    assert (emitted(sites), sites.committed("B", GROUP, "P.Payments")) == (0, 41)


@pytest.mark.parametrize(
    ("duties", "expected"),
    [
        ({"checkpoints", "topics"}, (1, None)),
        ({"group-offsets"}, (0, 41)),
        ({"topics"}, (0, None)),
    ],
)
def test_what_something_else_does_is_left_to_it(
    sites: TwoSites,  # noqa: F811
    charge: Charge,
    duties: set[str],
    expected: tuple[int, int | None],
) -> None:
    sites.commit("P", GROUP, "Payments", 40)
    charge.duties = frozenset(duties)

    assert duty_of(sites, charge, lambda: 0.0).step() > 0

    assert (emitted(sites), sites.committed("B", GROUP, "P.Payments")) == expected


def test_lists_of_srm_control_count_at_once(sites: TwoSites, charge: Charge) -> None:  # noqa: F811
    sites.change("P->B", groups=())
    sites.commit("P", GROUP, "Payments", 40)
    now = [0.0]
    duty = duty_of(sites, charge, lambda: now[0])
    duty.step()
    assert emitted(sites) == 0
    context = sites.flow("P->B")
    ensure_compacted(context.target, internal_topics.control("P"), replication_factor=1)
    change = ListChange(add=(GROUP,))
    control_lists.change(context.target, context.config.flow, "groups", change, 1)
    now[0] = 60.0

    duty.step()

    assert emitted(sites) == 1


def test_remote_topics_follow_their_sources(sites: TwoSites, charge: Charge) -> None:  # noqa: F811
    sites.clusters["P"].create_partitions({"Payments": 3})
    stop = threading.Event()
    work = threading.Thread(
        target=keep_topics, args=(charge.as_driver(), sites.flow("P->B"), stop), daemon=True
    )
    work.start()

    eventually(lambda: sites.clusters["B"].topics()["P.Payments"].partitions == 3, "it has grown")
    stop.set()
    work.join(DEADLINE_S)


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
    assert beat.troubles == ("topic sync: P does not answer",)
    assert driver.progress.snapshot().trouble == "P does not answer"
    assert driver.progress.trouble is None, "it keeps the flow from nothing"
