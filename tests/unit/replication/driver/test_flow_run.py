"""Each flow of an application begins, fails and ends by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.unit.replication.driving import FLOW, Lab
from tests.waiting import DEADLINE_S, eventually

from srm.domain.flow_state.replication_records import (
    DRIVER_KEY,
    REQUEST_KEY,
    DriverHeartbeat,
    DriverRequest,
)
from srm.errors import (
    AuthorizationError,
    ConfigError,
    FencedError,
    SrmError,
    SupersededError,
    UnavailableError,
)
from srm.replication.driver import driver as driver_module
from srm.replication.driver.flow_run import FlowHost, FlowRun


class OneFlow:
    """A flow with its driver over memory, and a slot that copies until it is cancelled."""

    def __init__(self, host: FlowHost, before: OneFlow | None = None) -> None:
        self.lab = Lab() if before is None else before.lab
        self.copying = threading.Event()
        self.cancelled = threading.Event()
        self.superseded = threading.Event()
        self.submitted = 0
        self.driver = self.lab.driver(opened=False)
        self.working = threading.Event()
        works = {"work": self._work}
        self.closed = threading.Event()
        resources = ExitStack()
        resources.callback(self.closed.set)
        self.run = FlowRun(
            host,
            _context(),
            self.driver,
            {"slot": self._copy},
            works,
            resources,
            before and before.run,
        )

    def _copy(self) -> None:
        self.submitted += 1
        assert self.is_driven(), "a slot reads in the log that its driver is in charge"
        self.copying.set()
        if self.superseded.is_set():
            raise SupersededError("another application drives flow P->B now")
        self.cancelled.wait(DEADLINE_S)
        raise SrmError("cancelled")

    def _work(self, stop: threading.Event) -> None:
        assert self.is_driven(), "only a driver in charge has works"
        self.working.set()
        stop.wait(DEADLINE_S)
        self.working.clear()

    def is_driven(self) -> bool:
        return any(record.key == DRIVER_KEY for record in self.lab.topic.records)


def _context() -> SimpleNamespace:
    return SimpleNamespace(config=SimpleNamespace(flow=FLOW), source=None)


@pytest.fixture
def flows(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[OneFlow, OneFlow]]:
    """Two flows of one application, which ends with the test."""
    monkeypatch.setattr(driver_module, "RETRY_S", 0.05)
    made: list[OneFlow] = []
    host = FlowHost(cancel=lambda _name: [one.cancelled.set() for one in made if one.run.failure])
    host.ready.set()
    made += [OneFlow(host), OneFlow(host)]
    yield made[0], made[1]
    host.stop.set()
    host.slots_ended.set()
    for one in made:
        one.run.end()
        one.cancelled.set()
        one.run.join()


@pytest.mark.parametrize(
    "failure",
    [
        UnavailableError("C does not answer"),
        AuthorizationError("C refuses the password"),
        SrmError("C answers nonsense"),
        ValueError("a mistake in srm"),
    ],
)
def test_a_flow_that_cannot_begin_waits_alone_and_begins_when_its_target_answers(
    flows: tuple[OneFlow, OneFlow], failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    well, waiting = flows
    waiting.lab.discovery.target = failure
    for one in flows:
        one.run.start()

    eventually(lambda: well.copying.is_set() and well.is_driven(), "the other flow is copied")
    eventually(lambda: waiting.driver.progress.troubles.first, "the flow says why it waits")
    assert str(failure) in waiting.driver.progress.snapshot().trouble
    assert not waiting.copying.is_set()
    assert "P->B: the driver fails and is tried again: " in caplog.text

    waiting.lab.discovery.target = None
    eventually(lambda: waiting.copying.is_set() and waiting.is_driven(), "it begins")
    assert waiting.driver.progress.snapshot().trouble == ""
    levels = [one.levelname for one in caplog.records if "P->B: the driver " in one.getMessage()]
    assert levels == ["WARNING", "WARNING"], "who sees a failure sees its end"
    assert not any(one.run.is_over(until_caught_up=False) for one in flows)


def test_a_flow_that_another_replicator_takes_over_ends_with_its_slots_and_no_other(
    flows: tuple[OneFlow, OneFlow],
) -> None:
    going, taken = flows
    for one in flows:
        one.run.start()
        eventually(one.is_driven, "it is driven")

    taken.lab.driver("another")
    taken.lab.second(taken.lab.driver("another"))

    eventually(taken.cancelled.is_set, "its slots are cancelled")
    assert isinstance(taken.run.failure, FencedError)
    eventually(lambda: not taken.working.is_set(), "its works end")
    assert going.working.is_set()
    assert taken.run.is_over(until_caught_up=False)
    assert "is driven by another replicator now" in taken.driver.progress.snapshot().trouble
    beats = len(going.lab.topic.records)
    going.lab.now += 5
    eventually(lambda: len(going.lab.topic.records) > beats, "the other is driven")
    assert not going.cancelled.is_set()
    assert not going.run.is_over(until_caught_up=False)


def test_a_flow_whose_slots_read_that_another_application_drives_it_ends(
    flows: tuple[OneFlow, OneFlow], caplog: pytest.LogCaptureFixture
) -> None:
    """Its own driver may be cut off from the target, where its slots are not."""
    one, going = flows
    one.superseded.set()
    for each in flows:
        each.run.start()

    eventually(lambda: one.run.is_over(until_caught_up=False), "the flow ends")
    assert isinstance(one.run.failure, SupersededError)
    assert one.submitted == 1
    assert caplog.text.count("another application drives flow P->B now") == 1
    assert not going.run.is_over(until_caught_up=False)
    eventually(lambda: not one.working.is_set(), "its works end, which another application has")


def test_a_run_begins_when_the_one_that_it_replaces_has_ended_and_says_no_end_of_the_application(
    flows: tuple[OneFlow, OneFlow],
) -> None:
    old, other = flows
    for one in flows:
        one.run.start()
        eventually(one.copying.is_set, "it copies")
    asked = DriverRequest("r1", "restart", "ann", 1)
    old.driver.started_after = "r0"
    host = old.run.host
    host.cancel = lambda _name: old.cancelled.set()

    new = OneFlow(host, old)
    new.run.start()
    eventually(new.copying.is_set, "the next run copies")

    assert old.cancelled.is_set()
    assert old.closed.is_set()
    assert not old.working.is_set()
    beats = [r.value for r in old.lab.topic.records if r.key == DRIVER_KEY]
    assert not any(DriverHeartbeat.decode(beat or b"").ended for beat in beats)
    assert other.working.is_set()

    new.lab.topic.append(REQUEST_KEY, replace(asked, request="r0").value())
    new.lab.topic.append(REQUEST_KEY, asked.value())
    eventually(host.stop.is_set, "a request since the start of the application ends it")
    new.run.end()
    new.cancelled.set()


def test_a_run_takes_nothing_back_from_who_has_taken_the_flow_from_the_one_that_it_replaces(
    flows: tuple[OneFlow, OneFlow],
) -> None:
    """Its predecessor may end before its next record fails."""
    old, _ = flows
    old.run.start()
    eventually(old.copying.is_set, "it copies")
    host = old.run.host
    host.cancel = lambda _name: old.cancelled.set()
    old.run.end()  # it is about to be replaced
    eventually(lambda: not old.run._threads[0].is_alive(), "its driver has ended")
    newer = old.lab.driver("newer")
    old.lab.second(newer)
    epoch = old.lab.topic.epoch

    new = OneFlow(host, old)
    new.run.start()

    eventually(lambda: isinstance(new.run.failure, FencedError), "the flow ends here")
    assert old.lab.topic.epoch == epoch, "the other application is not fenced"
    assert old.closed.is_set()


def test_a_request_that_the_replaced_run_read_last_is_known_from_the_next(
    flows: tuple[OneFlow, OneFlow],
) -> None:
    """Heartbeats of all flows name who has stopped the application."""
    old, _ = flows
    new = OneFlow(old.run.host, old)
    old.driver.obeyed = DriverRequest("r1", "stop", "ann", 1)

    assert new.run.request == old.driver.obeyed
    new.run.end()
    new.run._drive()
    assert new.run.request == old.driver.obeyed


def test_settings_that_a_target_refuses_end_a_flow_only_until_it_accepts_them(
    flows: tuple[OneFlow, OneFlow],
) -> None:
    refused, _ = flows
    refused.lab.discovery.target = ConfigError("B has 2 brokers, replication factor is 3")
    refused.run.start()

    eventually(lambda: refused.run.is_over(until_caught_up=False), "it alone would end all")
    assert str(refused.run.failure) == "B has 2 brokers, replication factor is 3"

    refused.lab.discovery.target = None
    eventually(lambda: refused.copying.is_set() and refused.is_driven(), "it begins")
    assert not refused.run.is_over(until_caught_up=False)


def test_a_failure_that_stays_the_same_is_logged_once(
    flows: tuple[OneFlow, OneFlow], caplog: pytest.LogCaptureFixture
) -> None:
    one, _ = flows
    one.lab.discovery.source = UnavailableError("P does not answer")
    tries: list[int] = []
    round_of_topics = one.lab.discovery.round
    one.lab.discovery.round = lambda: tries.append(1) or round_of_topics()  # type: ignore[method-assign]
    one.driver.refresh_s = 0.01
    one.run.start()

    eventually(lambda: len(tries) > 3, "discovery is tried again")

    assert caplog.text.count("P does not answer") == 1
    assert "P does not answer, " in one.driver.progress.snapshot().trouble
