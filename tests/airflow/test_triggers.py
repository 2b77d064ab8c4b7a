"""The trigger of a move's wait, without a database and without clusters."""

from __future__ import annotations

import asyncio
import pkgutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.triggers.base import TaskSuccessEvent
from tests.airflow.notified import Notified

from srm.domain.moves.gate import GroupSync, SyncStatus
from srm.errors import NotFoundError, UnavailableError
from srm_airflow import triggers
from srm_airflow.triggers import MoveWaitTrigger

pytestmark = pytest.mark.airflow

WAITING = SyncStatus(
    move_id="m1",
    ready=False,
    applied=False,
    blocking=("group g is still active on P (c-1): stop it there",),
    unapplied=(),
    remaining_records=500,
    groups=(GroupSync("g", 1, synchronised=False, applied=False, remaining=500),),
    eta_seconds=4.0,
    elapsed_seconds=3.0,
    timed_out=False,
)
READY = replace(WAITING, ready=True, blocking=(), remaining_records=0, eta_seconds=0.0)

Look = SyncStatus | Exception | Callable[[], SyncStatus]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Let the gate answer as given, the last answer for ever; tell what became of the watch."""

    def answer(*answers: Look) -> dict[str, Any]:
        seen: dict[str, Any] = {
            "polls": 0,
            "closed": False,
            "threads": set(),
            "polled": threading.Event(),
        }

        class Watch:
            def __init__(self, *where: str, shared: bool) -> None:
                seen["where"], seen["shared"] = where, shared

            def poll(self) -> SyncStatus:
                seen["threads"].add(threading.get_ident())
                found = answers[min(seen["polls"], len(answers) - 1)]
                seen["polls"] += 1
                seen["polled"].set()
                if isinstance(found, Exception):
                    raise found
                return found() if callable(found) else found

            def close(self) -> None:
                seen["closed"] = True

        monkeypatch.setattr(triggers, "MoveWatch", Watch)
        return seen

    return answer


def trigger(deadline_in: float = 600) -> MoveWaitTrigger:
    return MoveWaitTrigger(
        config_path="srm.properties",
        move_id="m1",
        source="P",
        target="B",
        deadline=time.time() + deadline_in,
        poll_s=0.01,
    )


def fire(subject: MoveWaitTrigger) -> Any:
    async def first() -> Any:
        events = subject.run()
        event = await anext(events)
        await events.aclose()
        return event

    return asyncio.run(first())


def test_another_triggerer_can_go_on_from_what_is_serialized() -> None:
    subject = trigger()
    path, kwargs = subject.serialize()

    assert pkgutil.resolve_name(path)(**kwargs).serialize() == (path, kwargs)


def test_a_ready_move_ends_the_task_without_a_worker(looks: Callable[..., dict[str, Any]]) -> None:
    """Waking a worker up takes a second and a half, in which no client works."""
    seen = looks(WAITING, WAITING, READY)

    event = fire(trigger())

    assert isinstance(event, TaskSuccessEvent)
    assert event.xcoms is not None
    assert event.xcoms["return_value"]["ready"] is True
    assert (seen["polls"], seen["closed"]) == (3, True)
    assert (seen["where"], seen["shared"]) == (("srm.properties", "m1", "P", "B"), True)


def test_the_notifier_is_told_once_that_the_wait_is_long_and_for_whom(
    looks: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    file = tmp_path / "srm.properties"
    file.write_text(
        "clusters = P, B\nP.bootstrap.servers = p:1\nB.bootstrap.servers = b:1\n"
        "failover.alert.seconds = 60\n"
        "failover.notifier = tests.airflow.notified.Notified\n"
        'failover.notifier.arguments = {"channel": "{{ srm.event }}", "text": "{{ srm.text }}"}\n'
    )
    Notified.told.clear()
    late = replace(WAITING, elapsed_seconds=61.0)
    looks(replace(WAITING, elapsed_seconds=59.0), late, late, READY)
    subject = trigger()
    subject.config_path, subject.operation = str(file), "failover"

    fire(subject)

    ((event, text),) = Notified.told
    assert event == "waiting"
    assert text.startswith("failover P->B, move m1: 61 s since the hold")
    assert "group g is still active on P (c-1): stop it there" in text


def test_clients_are_called_outside_the_loop_that_all_triggers_share(
    looks: Callable[..., dict[str, Any]],
) -> None:
    seen = looks(READY)

    fire(trigger())

    assert threading.get_ident() not in seen["threads"]


def test_the_log_says_what_is_left_and_for_whom_it_waits(
    looks: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    looks(WAITING, WAITING, READY)

    fire(trigger())

    lines = [line for line in capsys.readouterr().out.splitlines() if "since the hold" in line]
    assert len(lines) == 2, "a line that says nothing new is not repeated"
    assert (
        f"500 records to copy, about 4 s, 0 of 1 groups synchronised; "
        f"waiting for: {WAITING.blocking[0]}"
    ) in lines[0]
    assert "0 records to copy, 0 of 1 groups synchronised; ready" in lines[1]


def test_a_cluster_that_does_not_answer_for_a_while_does_not_end_the_wait(
    looks: Callable[..., dict[str, Any]],
) -> None:
    seen = looks(UnavailableError("P does not answer"), READY)

    assert isinstance(fire(trigger()), TaskSuccessEvent)
    assert seen["polls"] == 2


def test_an_error_that_waiting_does_not_cure_wakes_the_task_up(
    looks: Callable[..., dict[str, Any]],
) -> None:
    seen = looks(NotFoundError("move 'm1' is not known"))

    assert fire(trigger()).payload == {"state": "failed", "message": "move 'm1' is not known"}
    assert seen["closed"]


def test_waiting_is_bounded_by_the_deadline_whatever_the_clusters_say(
    looks: Callable[..., dict[str, Any]],
) -> None:
    looks(UnavailableError("P does not answer"))

    payload = fire(trigger(deadline_in=0.05)).payload
    assert payload == {"state": "timeout", "waits": ["P does not answer"]}


def test_waiting_ends_when_the_move_says_that_its_time_is_up(
    looks: Callable[..., dict[str, Any]],
) -> None:
    looks(replace(WAITING, timed_out=True))

    payload = fire(trigger()).payload
    assert payload["state"] == "timeout"
    assert payload["waits"] == list(WAITING.blocking)


def test_a_cancelled_trigger_closes_its_clients(looks: Callable[..., dict[str, Any]]) -> None:
    seen = looks(WAITING)

    async def cancel() -> None:
        running = asyncio.ensure_future(anext(trigger().run()))
        assert await asyncio.to_thread(seen["polled"].wait, 120)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancel())

    assert seen["closed"]


class FakeRest:
    """Airflow's REST API, which takes its time."""

    def __init__(self, seen: list[Any], asked: threading.Event, answer: threading.Event) -> None:
        self.works = True
        self._seen = seen
        self._asked = asked
        self._answer = answer

    def set_progress(self, *written: Any) -> None:
        self._seen.append(written)
        self._asked.set()
        self._answer.wait(120)


def test_progress_goes_to_the_state_store_and_never_delays_the_end_of_the_wait(
    looks: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once an XCom from the trigger held a ready move up for 87 s on a busy machine."""
    written: list[Any] = []
    asked, answered = threading.Event(), threading.Event()

    def ready_when_asked() -> SyncStatus:
        assert asked.wait(120)
        return READY

    looks(WAITING, WAITING, WAITING, ready_when_asked)
    monkeypatch.setattr(triggers, "AirflowRest", lambda *_run: FakeRest(written, asked, answered))
    subject = trigger()
    subject.task_instance = SimpleNamespace(  # type: ignore[assignment]
        dag_id="srm_failover", run_id="r", task_id="wait", map_index=-1
    )
    fired: list[bool] = []

    async def first() -> Any:
        event = await anext(subject.run())
        fired.append(not answered.is_set())
        answered.set()
        return event

    event = asyncio.run(first())

    assert isinstance(event, TaskSuccessEvent)
    assert fired == [True], "the write was still under way"
    ((task_id, map_index, progress),) = written
    assert (task_id, map_index, progress["remaining_records"]) == ("wait", -1, 500)


def test_people_are_asked_in_the_note_of_the_run_once_for_each_change(
    looks: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []

    class Notes:
        works = True

        def set_progress(self, *_written: Any) -> None: ...

        def set_note(self, text: str) -> None:
            notes.append(text)

    asking = replace(WAITING, asks=("stop client c-1 of group g",))

    def after(count: int, status: SyncStatus) -> Callable[[], SyncStatus]:
        return lambda: status if len(notes) >= count else asking

    looks(asking, asking, after(1, READY))
    monkeypatch.setattr(triggers, "AirflowRest", lambda *_run: Notes())
    monkeypatch.setattr(triggers, "PUBLISH_EVERY_S", 0.0)
    subject = trigger()
    subject.task_instance = SimpleNamespace(  # type: ignore[assignment]
        dag_id="srm_failover", run_id="r", task_id="wait", map_index=-1
    )

    async def first() -> Any:
        return await anext(subject.run())

    assert isinstance(asyncio.run(first()), TaskSuccessEvent)
    assert notes == ["please stop client c-1 of group g"]
