"""The trigger of the replicator, on heartbeats that the test sends."""

from __future__ import annotations

import asyncio
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import pytest
from tests.waiting import eventually

from srm.domain.flow_state.replication_records import DRIVER_KEY, REQUEST_KEY, DriverHeartbeat
from srm.domain.names.topics import Flow
from srm.engine.flows import supervision
from srm.engine.flows.supervision import read_request
from srm.errors import UnavailableError
from srm.spark.supervisor import Application
from srm_airflow import operators, triggers
from srm_airflow.compat import TaskDeferred
from srm_airflow.operators import ReplicationOperator
from srm_airflow.triggers import ReplicatorTrigger

pytestmark = pytest.mark.airflow

FLOWS = ["B->P", "P->B"]
BEAT = DriverHeartbeat("d", "app-7", "host-7", 4711, 1, flows=tuple(FLOWS))
APPLICATION = Application("host-7", 4711, 0.0, ours=False, driver="d")


class Topic:
    """A state topic whose driver beats at each look, ends on request, or dies after some looks."""

    def __init__(self, looks: int = 1_000_000, error: Exception | None = None) -> None:
        self.looks = looks
        self.error = error
        self.driver = BEAT
        self.records: dict[bytes, bytes] = {}

    def read(self) -> dict[bytes, bytes]:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.looks -= 1
        if self.looks > 0 and not self.driver.ended:
            asked = read_request(self.records) is not None
            self.driver = replace(self.driver, time_ms=self.driver.time_ms + 1000, ended=asked)
        return {**self.records, DRIVER_KEY: self.driver.value()}

    def write(self, records: dict[bytes, bytes | None]) -> None:
        self.records |= {key: value for key, value in records.items() if value is not None}


def trigger(monkeypatch: pytest.MonkeyPatch, topic: Topic) -> ReplicatorTrigger:
    @contextmanager
    def opened(config_path: str, flows: list[str]) -> Iterator[Any]:
        assert (config_path, flows) == ("srm.properties", FLOWS)
        yield {Flow.parse(flow): topic for flow in flows}

    monkeypatch.setattr(triggers, "flows_state", opened)
    return ReplicatorTrigger(
        config_path="srm.properties",
        flows=FLOWS,
        application=asdict(APPLICATION),
        look_every_s=0.01,
    )


async def first(subject: ReplicatorTrigger) -> Any:
    events = subject.run()
    event = await anext(events)
    await events.aclose()
    return event.payload


def test_it_continues_from_what_is_serialized(monkeypatch: pytest.MonkeyPatch) -> None:
    path, kwargs = trigger(monkeypatch, Topic()).serialize()

    assert pkgutil.resolve_name(path)(**kwargs).serialize() == (path, kwargs)


def test_an_application_that_stops_to_beat_wakes_the_task_up_to_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervision, "LOST_S", 0.2)

    event = asyncio.run(first(trigger(monkeypatch, Topic(looks=5))))

    assert event["state"] == "lost"
    task = ReplicationOperator(task_id="replicator", flows=FLOWS, config_path="srm.properties")
    with pytest.raises(UnavailableError, match=r"B->P, P->B sends no heartbeats .*host-7"):
        task.execute_complete({}, event)


def test_a_cleared_task_ends_the_application_by_a_request_in_kafka(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = Topic()
    subject = trigger(monkeypatch, topic)

    async def cleared() -> Any:
        running = asyncio.ensure_future(first(subject))
        await subject.on_kill()
        return await running

    assert asyncio.run(cleared())["state"] == "ended"
    assert REQUEST_KEY in topic.records


def test_a_target_that_does_not_answer_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(error=UnavailableError("B does not answer"))
    subject = trigger(monkeypatch, topic)

    async def until_read() -> Any:
        running = asyncio.ensure_future(first(subject))
        await asyncio.to_thread(eventually, lambda: topic.driver.time_ms >= 5000, "some looks")
        assert not running.done()
        await subject.on_kill()
        return await running

    assert asyncio.run(until_read())["state"] == "ended"


def test_a_deferrable_task_leaves_its_worker_when_the_application_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Supervisor:
        was_killed = False

        def __init__(self, *_args: Any) -> None: ...

        def begin(self, known: Application | None) -> Application:
            assert known is None
            return APPLICATION

    @contextmanager
    def nothing(_path: str) -> Iterator[None]:
        yield

    monkeypatch.setattr(operators, "ReplicatorSupervisor", Supervisor)
    monkeypatch.setattr(operators, "given_to_processes", nothing)
    task = ReplicationOperator(
        task_id="replicator", flows=FLOWS, config_path="srm.properties", deferrable=True
    )

    with pytest.raises(TaskDeferred) as deferred:
        task.execute({})

    assert isinstance(deferred.value.trigger, ReplicatorTrigger)
    assert deferred.value.trigger.application == asdict(APPLICATION)
    assert deferred.value.method_name == "execute_complete"
