"""``--watch``: one look after another without drift, until Ctrl-C."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from io import StringIO
from itertools import islice, repeat
from typing import Annotated

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from srm.cli import console as console_module
from srm.cli.console import Looked, WatchOption, beats, show
from srm.cli.main import CliCommand, app
from srm.errors import ConfigError, SrmError, UnavailableError


class Looks:
    """Finds 1, 2, 3 ..., or raises what is set for a look; then Ctrl-C comes."""

    def __init__(self, count: int, errors: dict[int, SrmError] | None = None) -> None:
        self.done = 0
        self._count = count
        self._errors = errors or {}

    def __call__(self) -> Looked:
        if self.done == self._count:
            raise KeyboardInterrupt
        self.done += 1
        if self.done in self._errors:
            raise self._errors[self.done]
        found = self.done
        return Looked(
            {"found": found}, lambda console: console.print(f"found {found}", highlight=False)
        )


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_module, "beats", lambda _seconds: repeat(None))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> StringIO:
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=60, height=20)
    monkeypatch.setattr(console_module, "open_console", lambda: console)
    return out


def test_without_it_there_is_one_look_and_its_errors_are_raised(
    capsys: pytest.CaptureFixture[str],
) -> None:
    looks = Looks(5)

    show(looks, None, as_json=False)

    assert (looks.done, capsys.readouterr().out) == (1, "found 1\n")
    with pytest.raises(UnavailableError):
        show(Looks(1, {1: UnavailableError("away")}), None, as_json=False)


def test_json_is_one_document_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    show(Looks(3), 2.0, as_json=True)

    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == [{"found": n} for n in (1, 2, 3)]


def test_a_pipe_gets_each_look_under_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    show(Looks(2), 2.0, as_json=False)

    lines = capsys.readouterr().out.splitlines()
    assert lines[1::2] == ["found 1", "found 2"]
    assert all(line.count(":") == 2 for line in lines[::2])


def test_a_terminal_is_redrawn_and_keeps_the_last_look(terminal: StringIO) -> None:
    show(Looks(2), 2.0, as_json=False)

    shown = terminal.getvalue()
    assert "found 1" in shown
    assert shown.rindex("found 2") > shown.rindex("found 1")
    assert "every 2 s until Ctrl-C" in shown


def test_long_lines_are_wrapped_and_not_cut_off(terminal: StringIO) -> None:
    looks = iter([Looked(1, lambda console: console.print("word " * 30 + "end", soft_wrap=True))])

    def look() -> Looked:
        for found in looks:
            return found
        raise KeyboardInterrupt

    show(look, 2.0, as_json=False)

    assert "end" in terminal.getvalue()


def test_what_passes_by_waiting_is_said_and_looked_at_again(
    terminal: StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = Looks(3, {2: UnavailableError("cluster B does not answer")})

    show(looks, 2.0, as_json=False)

    assert looks.done == 3
    assert "cluster B does not answer" in terminal.getvalue()
    show(Looks(3, {2: UnavailableError("away")}), 2.0, as_json=True)
    captured = capsys.readouterr()
    assert (len(captured.out.splitlines()), captured.err) == (2, "srm: away\n")


def test_what_no_waiting_ends_ends_the_watch(terminal: StringIO) -> None:
    with pytest.raises(ConfigError):
        show(Looks(3, {2: ConfigError("no such flow")}), 2.0, as_json=False)

    assert "found 1" in terminal.getvalue()


def test_what_went_wrong_next_to_a_look_is_said_under_it(terminal: StringIO) -> None:
    def complain() -> None:
        raise UnavailableError("B->P: cluster P does not answer")

    shown: Iterator[Looked] = iter(
        [Looked(1, lambda console: console.print("P->B is well"), complain)]
    )

    def look() -> Looked:
        for found in shown:
            return found
        raise KeyboardInterrupt

    show(look, 2.0, as_json=False)

    assert "P->B is well" in terminal.getvalue()
    assert "B->P: cluster P does not answer" in terminal.getvalue()


def test_looks_are_at_multiples_of_the_interval_however_long_they_take() -> None:
    now, waited = [100.0], list[float]()

    def wait(seconds: float) -> None:
        waited.append(round(seconds, 6))
        now[0] += seconds

    took = iter([0.5, 0.1, 4.5, 0.0])
    at = []
    for _ in islice(beats(2.0, lambda: now[0], wait), 4):
        at.append(round(now[0] - 100.0, 6))
        now[0] += next(took)

    assert at == [0.0, 2.0, 4.0, 10.0]


@pytest.mark.parametrize(
    ("arguments", "seconds", "name"),
    [
        ([], None, "none"),
        (["--watch"], 2.0, "none"),
        (["--watch", "5"], 5.0, "none"),
        (["--watch", "move-1"], 2.0, "move-1"),
        (["move-1", "--watch", "0.5"], 0.5, "move-1"),
        (["--watch=7", "move-1"], 7.0, "move-1"),
    ],
)
def test_the_interval_may_be_left_out(
    arguments: list[str], seconds: float | None, name: str
) -> None:
    program, got = typer.Typer(), list[object]()

    @program.command(cls=CliCommand)
    def look(which: Annotated[str, typer.Argument()] = "none", watch: WatchOption = None) -> None:
        got.extend((which, watch))

    assert CliRunner().invoke(program, arguments).exit_code == 0
    assert got == [name, seconds]


@pytest.mark.parametrize(
    "command",
    [("status",), ("why",), ("stack", "status"), ("metrics", "show"), ("failover", "status")],
)
def test_commands_that_one_watches_have_it(command: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "120"})

    assert "--watch" in shown.output


def test_ctrl_c_is_exit_code_0() -> None:
    program: typer.Typer = typer.Typer()
    looks: Callable[[], Looked] = Looks(1)

    @program.command()
    def look() -> None:
        show(looks, 1.0, as_json=True)

    assert CliRunner().invoke(program, []).exit_code == 0
