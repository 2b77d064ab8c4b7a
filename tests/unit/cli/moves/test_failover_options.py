"""``srm failover plan`` and ``run`` have every setting of a move as an option."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from srm.cli.main import app
from srm.cli.moves import failover
from srm.config import loader
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.request import SETTINGS, MoveRequest
from srm.domain.text.amount import problem
from srm.errors import ConflictError, UsageError

GIVEN = {
    "operation": "failback",
    "source": "B",
    "target": "P",
    "topics": ("Payments", "Refunds"),
    "groups": ("audit",),
    "exclude_groups": ("slow",),
    "mode": "unplanned",
    "redirect": ("routing", "webhook", "manual"),
    "fence": "acl",
    **{setting.name: 7.0 for setting in SETTINGS if setting.kind == "seconds"},
    **{setting.name: True for setting in SETTINGS if setting.kind == "switch"},
}
ALL = MoveRequest(**GIVEN)  # type: ignore[arg-type]
STORED = MovePlan("stored", 1, ALL, (), groups=(), findings=(), settings={})


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[MoveRequest]:
    """Requests that commands have made; each ends there, with its clusters opened."""
    made: list[MoveRequest] = []

    @contextmanager
    def opened(_config: object, *_pair: str, unplanned: bool) -> Iterator[Any]:
        assert unplanned == (GIVEN["mode"] == "unplanned")
        yield SimpleNamespace()

    def keep(_context: object, request: MoveRequest, *_rest: object, **_how: object) -> None:
        made.append(request)
        raise UsageError("as far as this test goes")

    monkeypatch.setattr(loader, "load_config", lambda _: SimpleNamespace(clusters=("P", "B")))
    monkeypatch.setattr(failover, "open_move", opened)
    monkeypatch.setattr(failover, "open_records", lambda *_: nullcontext())
    known = SimpleNamespace(plan=lambda move_id: STORED if move_id == "stored" else None)
    monkeypatch.setattr(failover.MoveStore, "read", lambda _: known)
    monkeypatch.setattr(failover.planning, "plan", keep)
    return made


def arguments() -> Iterator[str]:
    for setting in SETTINGS:
        value = GIVEN[setting.name]
        if setting.kind == "switch":
            yield str(setting.option)
        elif setting.kind == "names":
            for name in value:  # type: ignore[union-attr]
                yield from (str(setting.option), name)
        else:
            text = ",".join(value[1:]) if isinstance(value, tuple) else str(value)
            yield from (str(setting.option), text)


@pytest.mark.parametrize("command", [["plan"], ["run", "--move-id", "m1"]])
def test_each_setting_reaches_the_request(command: list[str], requests: list[MoveRequest]) -> None:
    CliRunner().invoke(app, ["failover", *command, *arguments()])

    assert requests == [ALL]


def test_the_options_of_a_request_lead_back_to_it(requests: list[MoveRequest]) -> None:
    CliRunner().invoke(app, ["failover", "plan", "--mode", ALL.mode, *shlex.split(ALL.options)])

    assert requests == [ALL]


def test_without_options_a_move_is_that_of_all_from_the_first_cluster(
    requests: list[MoveRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GIVEN, "mode", "planned")

    CliRunner().invoke(app, ["failover", "plan"])

    assert requests == [MoveRequest("failover", "P", "B")]


@pytest.mark.parametrize("clusters", [[], ["--source", "B", "--target", "P"]])
def test_a_known_move_is_continued_by_its_id_alone(
    requests: list[MoveRequest], clusters: list[str]
) -> None:
    """Another engineer continues it, who does not know the options of its first run."""
    CliRunner().invoke(app, ["failover", "run", "--move-id", "stored", *clusters])

    assert requests == [STORED.request]


def test_a_setting_next_to_the_id_is_that_of_another_request(
    requests: list[MoveRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GIVEN, "mode", "planned")

    CliRunner().invoke(app, ["failover", "run", "--move-id", "stored", "--topic", "Payments"])

    assert requests == [MoveRequest("failover", "P", "B", topics=("Payments",))]


def test_a_value_out_of_its_bounds_is_refused_before_any_cluster_is_opened(
    requests: list[MoveRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "open_move", lambda *_: pytest.fail("opened"))

    refused = CliRunner().invoke(app, ["failover", "run", "--timeout", "0.5"])

    assert "wait_seconds (--timeout) of the move is 0.5: give 1 to 21600 seconds" in str(
        refused.exception
    )
    assert requests == []


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["plan"], "the move"),
        (["run", "--dry-run"], "the move"),
        (["run", "--dry-run", "--move-id", "m1"], "move m1"),
    ],
)
def test_a_blocked_plan_is_exit_code_4_and_has_only_the_id_that_was_given(
    command: list[str], name: str, requests: list[MoveRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = problem("no-topic", "B has no topic P.Payments")
    planned = replace(STORED, move_id="m1", findings=(blocks,))
    monkeypatch.setattr(failover, "open_move", lambda *_, **__: nullcontext(SimpleNamespace()))
    monkeypatch.setattr(failover.planning, "plan", lambda *_, **__: planned)
    monkeypatch.setattr(failover.planning, "new_move_id", lambda *_: "m1")
    monkeypatch.setattr(failover, "plan_view", lambda *_, **__: "the plan")

    blocked = CliRunner().invoke(app, ["failover", *command])

    assert blocked.stdout == "the plan\n"
    assert isinstance(blocked.exception, ConflictError)
    assert str(blocked.exception) == f"{name} is blocked: B has no topic P.Payments"
    assert requests == []
