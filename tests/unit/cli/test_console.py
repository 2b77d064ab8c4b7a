"""What all commands share: JSON of results, errors in one line, stack traces only on demand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import typer
from rich.console import Console

from srm.cli.console import FlowOption, emit, open_console, run_cli
from srm.domain.names.topics import Flow
from srm.errors import GateClosedError


@dataclass(frozen=True)
class Result:
    flow: Flow
    lag: dict[Flow, int]
    age: timedelta


RESULT = Result(Flow("P", "B"), {Flow("P", "B"): 3}, timedelta(seconds=90))


def test_json_shows_dataclasses_with_readable_keys_and_durations(
    capsys: pytest.CaptureFixture[str],
) -> None:
    emit(RESULT, as_json=True, render=lambda _console: pytest.fail("text was asked for"))

    assert json.loads(capsys.readouterr().out) == {
        "flow": {"source": "P", "target": "B"},
        "lag": {"P->B": 3},
        "age": "PT1M30S",
    }


def test_text_goes_through_the_renderer(capsys: pytest.CaptureFixture[str]) -> None:
    def render(console: Console) -> None:
        console.print("lag 3")

    emit(RESULT, as_json=False, render=render)

    assert capsys.readouterr().out == "lag 3\n"


def run_app(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def show(flow: FlowOption) -> None:
        if flow.source == "X":
            raise GateClosedError(f"group g of {flow}\nis not synchronised")
        raise ValueError("surprise")

    monkeypatch.setattr(sys, "argv", ["/bin/srm", *arguments])
    with pytest.raises(SystemExit) as end:
        run_cli(app)
    assert isinstance(end.value.code, int)
    return end.value.code


def test_an_srm_error_is_one_line_and_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_app(monkeypatch, "--flow", "X->B") == 5
    assert capsys.readouterr().err == "srm: group g of X->B is not synchronised\n"


def test_an_unexpected_error_is_one_line_that_tells_how_to_see_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_app(monkeypatch, "--flow", "P->B") == 1
    assert capsys.readouterr().err == (
        "srm: unexpected ValueError: surprise (--debug shows where)\n"
    )


def test_a_flow_that_is_none_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_app(monkeypatch, "--flow", "P-B") == 2
    assert "flow 'P-B' is not of the form" in capsys.readouterr().err


def srm(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "srm"
    return subprocess.run(
        [program, *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={**os.environ, **environ},
    )


def test_the_program_tells_its_version_and_lists_its_groups() -> None:
    version, listing = srm("--version"), srm("--help", COLUMNS="100")

    assert version.stdout.startswith("srm 0.")
    assert "stack" in listing.stdout
    assert "Exit codes: 0 done" in listing.stdout


def test_a_stack_trace_needs_debug(tmp_path: Path) -> None:
    quiet = srm("stack", "status", "--home", str(tmp_path))
    loud = srm("--debug", "stack", "status", "--home", str(tmp_path))

    assert quiet.returncode == loud.returncode == 3
    assert quiet.stderr == (f"srm: no stack in {tmp_path}: start one with 'srm stack up'\n")
    assert "Traceback" in loud.stderr


def test_what_goes_into_a_pipe_is_not_wrapped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    line = "warning: " + "word " * 60

    emit({}, as_json=False, render=lambda console: console.print(line))

    assert capsys.readouterr().out == f"{line}\n"
    open_console(stderr=True).print(line)
    assert capsys.readouterr().err == f"{line}\n"
