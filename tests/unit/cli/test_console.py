"""What all commands share: JSON of results, errors in one line, stack traces only on demand."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Literal

import pytest
import typer
from rich.console import Console, Group
from rich.text import Text

import srm as srm_package
from srm.cli import console, main
from srm.cli.commands import PROGRAMS, Entry
from srm.cli.console import FlowOption, JsonOption, emit, name_file, open_console, run_cli
from srm.domain.names.topics import Flow, TopicPartition
from srm.errors import GateClosedError, GivenUpError, NotFoundError
from srm.pages.tables import Listing


@dataclass(frozen=True)
class Result:
    flow: Flow
    at: TopicPartition
    lag: dict[Flow, int]
    age: timedelta


RESULT = Result(Flow("P", "B"), TopicPartition("T", 1), {Flow("P", "B"): 3}, timedelta(seconds=90))


def test_json_shows_dataclasses_with_readable_keys_and_durations(
    capsys: pytest.CaptureFixture[str],
) -> None:
    emit(RESULT, as_json=True, render=lambda _console: pytest.fail("text was asked for"))

    assert json.loads(capsys.readouterr().out) == {
        "flow": "P->B",
        "at": {"topic": "T", "partition": 1},
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
        "srm: unexpected ValueError: surprise; --debug shows where\n"
    )


@pytest.fixture
def with_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "named_file", [Path("my lab.properties")])


@pytest.mark.usefixtures("with_file")
def test_printed_commands_name_the_operators_file(capsys: pytest.CaptureFixture[str]) -> None:
    def render(to: Console) -> None:
        table = Listing("do")
        table.add_row(Text("srm why T", "red"))
        to.print(Group("see srm status, or 'srm failover report m1'", table, Text("srm doctor")))
        to.print("srm verify", "and srm init")

    emit(None, as_json=False, render=render)

    file = "--config 'my lab.properties'"
    assert capsys.readouterr().out.splitlines() == [
        f"see srm status {file}, or 'srm failover report {file} m1'",
        " do",
        f" srm why {file} T",
        f"srm doctor {file}",
        f"srm verify {file} and srm init",
    ]


def test_a_path_may_have_the_signs_of_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "named_file", [Path("[prod]/[/x].properties")])
    table = Listing("do")
    table.add_row("[bold]srm why[/bold] T")

    emit(None, as_json=False, render=lambda to: to.print(table, Text("srm doctor", end=""), "now"))

    file = "--config '[prod]/[/x].properties'"
    assert capsys.readouterr().out == f" do\n srm why {file} T\nsrm doctor {file} now\n"


@pytest.mark.usefixtures("with_file")
@pytest.mark.parametrize("between", [" ", "\n", "    \n  "])
def test_a_command_that_names_a_file_gets_no_other(between: str) -> None:
    text = f"srm status{between}--config\nother.properties"
    assert name_file(text) == text


def test_a_file_of_connect_or_strimzi_is_named_in_imports_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(console, "named_file", [Path("mm2.yaml")])

    assert name_file("srm import mm2 --yes") == "srm import mm2 --config mm2.yaml --yes"
    assert name_file("next: srm replicate") == "next: srm replicate"


_VERBS_BEFORE = re.compile(r"\b(?:can|may|must|will|does|did|that|which|lets?)$")


@pytest.mark.usefixtures("with_file")
def test_no_prose_of_a_program_reads_like_a_command() -> None:
    for path in Path(console.__file__).parents[1].rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            text = node.value if isinstance(node, ast.Constant) else ""
            named = name_file(text) if isinstance(text, str) else ""
            for before in re.split(r" srm(?:-control)? [^']*? --config 'my lab", named)[:-1]:
                assert not _VERBS_BEFORE.search(before), text


def test_a_file_that_commands_find_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SRM_CONFIG", str(tmp_path / "lab.properties"))
    monkeypatch.setattr(console, "named_file", [tmp_path / "lab.properties"])
    assert name_file("see srm status") == "see srm status"
    monkeypatch.delenv("SRM_CONFIG")
    assert name_file("see srm status") == f"see srm status --config {tmp_path}/lab.properties"


@pytest.mark.usefixtures("with_file")
def test_only_commands_that_read_a_file_get_one() -> None:
    def paths(name: str, entry: Entry) -> Iterator[tuple[str, Entry]]:
        yield from ((name, entry),) if entry.target else ()
        for word, one in entry.commands.items():
            yield from paths(f"{name} {word}", one)

    for program, entry in PROGRAMS.items():
        for path, one in paths(program, entry):
            module, _, function = one.target.partition(":")
            options = signature(
                main.with_options(getattr(import_module(module), function))
            ).parameters
            reads = ("config" in options and "follow" not in path) or program == "srm-control"
            assert (name_file(path) != path) == reads, path


def test_printed_commands_have_the_flow_that_they_require() -> None:
    """An operator of three clusters pasted 'srm return status', and got a usage error."""
    lacks = re.compile(r"srm return (?:status|settle)(?! --flow)|srm topics apply --remove")
    texts = {path: path.read_text("utf-8") for path in Path(srm_package.__path__[0]).rglob("*.py")}
    assert [str(path) for path, text in texts.items() if lacks.search(text)] == []


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
    assert (srm("version").stdout, srm("help").stdout) == (version.stdout, srm("-h").stdout)
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


def test_with_json_an_error_is_an_object_on_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)

    @app.command()
    def show(*, name: Literal["", "partial", "dead"] = "", as_json: JsonOption = False) -> None:
        if name == "partial":
            emit(["P->B"], as_json, lambda _: None)
        if name == "dead":
            raise GivenUpError("P does not answer")
        raise NotFoundError("no topic T on P", "create it")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["/bin/srm", *arguments])
        with pytest.raises(SystemExit) as end:
            run_cli(app)
        return int(end.value.code or 0), *capsys.readouterr()

    missing = {"type": "NotFoundError", "message": "no topic T on P", "action": "create it"}
    code, out, err = run("--json")
    assert (code, err) == (3, "srm: no topic T on P; create it\n")
    assert json.loads(out) == {"error": {**missing, "exit_code": 3}}

    code, out, err = run("--json", "--name", "partial")
    assert (code, json.loads(out)) == (3, ["P->B"])
    assert json.loads(err) == {"error": {**missing, "exit_code": 3}}

    code, out, _ = run("--json", "--name", "dead")
    assert (code, json.loads(out)["error"]["type"]) == (6, "UnavailableError")

    code, out, _ = run("--json", "--nmae", "x")
    error = json.loads(out)["error"]
    assert (code, error["type"], error["exit_code"]) == (2, "UsageError", 2)
    assert "No such option: --nmae" in error["message"]

    code, out, _ = run("--json", "--name", "C")
    assert code == 2
    assert json.loads(out)["error"]["message"].endswith(
        "'--name': 'C' is not one of '', 'partial', 'dead'."
    )


@pytest.mark.parametrize("arguments", [("-v", "stack"), ("stack", "--debug")])
def test_debug_may_follow_the_command(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[bool] = []
    monkeypatch.setattr("srm.cli.console.set_debug", lambda *, enabled: given.append(enabled))
    monkeypatch.setattr(sys, "argv", ["srm", *arguments, "status", "--home", str(tmp_path)])

    with pytest.raises(SystemExit):
        main.main()

    assert given == [True]


def test_an_interrupt_is_exit_code_130_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def show() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["srm"])
    with pytest.raises(SystemExit) as end:
        run_cli(app)

    assert (end.value.code, *capsys.readouterr()) == (130, "", "")


EVIL = "a\x1b[2J\u202eb\x9b1m"
SHOWN = r"a\x1b[2J\u202eb\x9b1m"


@pytest.mark.parametrize("stderr", [False, True])
def test_names_send_no_control_sequence_to_the_terminal(
    capsys: pytest.CaptureFixture[str], *, stderr: bool
) -> None:
    table = Listing("group", "lag", right=["lag"])
    table.add_row(EVIL, "3")
    to = open_console(stderr=stderr)
    to.print(table, Text(EVIL), EVIL, Group(Text(EVIL)), sep="\n")
    with to.status(EVIL):
        pass
    console.write_line(EVIL, stderr=stderr)

    lines = capsys.readouterr()[stderr].splitlines()
    assert lines[1].split() == [SHOWN, "3"]
    assert lines[2:] == [SHOWN] * 4


def test_an_error_sends_no_control_sequence_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise NotFoundError(f"group {EVIL}")

    app = typer.Typer()
    app.command()(fail)
    monkeypatch.setattr(sys, "argv", ["srm"])
    with pytest.raises(SystemExit):
        run_cli(app)

    assert capsys.readouterr().err == f"srm: group {SHOWN}\n"


def test_json_is_the_same_document_on_a_terminal_and_exact_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    emit({"name": EVIL}, as_json=True, render=lambda _: None)
    exact = capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    emit({"name": EVIL}, as_json=True, render=lambda _: None)
    shown = capsys.readouterr().out

    assert json.loads(exact) == json.loads(shown) == {"name": EVIL}
    assert "\u202e" in exact
    assert shown.replace("\n", "").isprintable()
