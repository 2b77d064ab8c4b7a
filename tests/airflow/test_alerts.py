"""Who is told how a move is doing, when, and that this never stops a move."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.airflow.notified import Notified

from srm.errors import ConflictError
from srm_airflow import alerts
from srm_airflow.alerts import Patience, alert_failure, alert_late, notify

pytestmark = pytest.mark.airflow

MOVE = {"move_id": "m1", "operation": "failover", "mode": "planned", "source": "P", "target": "B"}
BASE = """\
clusters = P, B
P.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:2
P->B.enabled = true
"""
NOTIFIER = """\
failover.notifier = tests.airflow.notified.Notified
failover.notifier.arguments = {"channel": "{{ srm.event }}-{{ srm.source }}", "text": "{{ srm.text }}"}
failover.alert.seconds = 30
"""  # noqa: E501

Configure = Callable[[str], None]


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Configure]:
    """Let tasks find a properties file with some more lines."""
    file = tmp_path / "srm.properties"
    monkeypatch.setenv("SRM_CONFIG", str(file))
    Notified.told.clear()

    def write(more: str) -> None:
        file.write_text(BASE + more)

    yield write
    Notified.told.clear()


def test_the_notifier_of_the_users_choice_gets_the_message_where_its_arguments_say(
    configured: Configure,
) -> None:
    configured(NOTIFIER)

    notify("waiting", "group audit is still active on P (c-1@host)", MOVE, {})

    assert Notified.told == [
        ("waiting-P", "failover P->B, move m1: group audit is still active on P (c-1@host)")
    ]


@pytest.mark.parametrize(
    "lines",
    [
        "failover.notifier = tests.airflow.notified.Broken\n",
        "failover.notifier = tests.airflow.notified.Nowhere\n",
        "failover.notifier = tests.airflow.notified.Notified\n",  # arguments are missing
        "tasks.max = many\n",
    ],
)
def test_a_notifier_that_fails_stops_no_move(configured: Configure, lines: str) -> None:
    configured(lines)

    notify("done", "clean", MOVE, {})

    assert Notified.told == []


def test_nobody_is_told_where_no_notifier_is_configured(configured: Configure) -> None:
    configured("")

    notify("done", "clean", MOVE, {})

    assert Notified.told == []


def test_a_task_that_has_failed_for_good_tells_the_reason_of_srm(configured: Configure) -> None:
    configured(NOTIFIER)
    error = RuntimeError("ConflictError: group audit is active on B")
    error.__cause__ = ConflictError("group audit is active on B")
    ti = SimpleNamespace(task_id="hold", xcom_pull=lambda **_named: MOVE)

    alert_failure({"ti": ti, "exception": error, "params": {}})

    assert [text for _, text in Notified.told] == [
        "failover P->B, move m1: task hold failed: group audit is active on B"
    ]


def test_a_callback_in_an_airflow_that_does_not_answer_does_not_fail(configured: Configure) -> None:
    configured(NOTIFIER)

    def no_answer(**_named: Any) -> Any:
        raise OSError("the API is away")

    alert_failure({"ti": SimpleNamespace(task_id="hold", xcom_pull=no_answer), "params": {}})

    assert Notified.told == []


def test_a_missed_rpo_is_told_with_the_command_that_shows_why(configured: Configure) -> None:
    configured(NOTIFIER)
    context = {"dag_run": {"queued_at": "2026-01-01T00:00:00Z"}}

    asyncio.run(alert_late(context, "P->B", os.environ["SRM_CONFIG"]))

    [(event, text)] = Notified.told
    assert event == "late-P"
    assert text.startswith("copy P->B: not all records written before 2026-01-01T00:00:00Z are")
    assert text.endswith("srm why --flow 'P->B'")


def test_a_wait_is_told_after_the_configured_time_and_then_ever_more_rarely(
    configured: Configure,
) -> None:
    configured(NOTIFIER)
    patience = Patience(MOVE)

    told = [second for second in range(0, 250, 5) if patience.is_over(second)]

    assert told == [30, 60, 120, 240]


def test_a_wait_that_is_taken_up_late_is_told_once(configured: Configure) -> None:
    configured(NOTIFIER)
    patience = Patience(MOVE)

    assert patience.is_over(500)
    assert not patience.is_over(505)
    assert patience.remaining_s(505) == pytest.approx(960 - 505)


def test_a_configuration_that_cannot_be_read_only_silences_the_alert(
    configured: Configure,
) -> None:
    configured("tasks.max = many\n")

    assert not alerts.Patience(MOVE).is_over(1e6)
