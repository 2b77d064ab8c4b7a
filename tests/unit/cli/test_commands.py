"""The table of commands is what the commands are, and help needs nothing but the table."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from inspect import getdoc
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from srm import wiring
from srm.cli import entry
from srm.cli.commands import CONTROL, SERVICE, SRM, Entry
from srm.cli.main import app, control, service
from srm.errors import EXIT_CODES, SrmError

PROGRAMS = {"srm": app, "srm-control": control, "srm-service": service}
HEAVY = {
    *("rich", "pydantic", "confluent_kafka", "aiokafka", "numpy", "httpx", "pyarrow", "pyspark"),
    *("airflow", "fastapi", "uvicorn", "jinja2", "pandas", "opentelemetry", "asyncio", "ssl"),
}


def leaves(path: str, entries: Mapping[str, Entry]) -> Iterator[tuple[str, Entry]]:
    for name, each in entries.items():
        if each.target:
            yield f"{path} {name}", each
        else:
            assert each.commands
            yield from leaves(f"{path} {name}", each.commands)


COMMANDS = dict(
    [*leaves("srm", SRM), *leaves("srm-control", CONTROL), *leaves("srm-service", SERVICE)]
)


@pytest.mark.parametrize("path", COMMANDS)
def test_only_the_table_has_the_help_of_the_command(path: str) -> None:
    module, _, function = COMMANDS[path].target.partition(":")
    assert COMMANDS[path].help
    assert getdoc(getattr(import_module(module), function)) is None


def parsed(words: list[str]) -> typer.Context:
    """Parse a command line without running it."""
    command: Any = typer.main.get_command(PROGRAMS[words[0]])
    context: Any = None
    name, rest = words[0], words[1:]
    while True:
        context = command.make_context(name, rest, parent=context)
        if not hasattr(command, "commands"):
            return context
        name, command, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )


@pytest.mark.parametrize("path", COMMANDS)
def test_each_command_has_examples_that_can_be_parsed(path: str) -> None:
    assert COMMANDS[path].examples
    for example in COMMANDS[path].examples:
        plain = re.sub(r'^eval "\$\((.*)\)"$', r"\1", example).partition(" > ")[0]
        context = parsed(shlex.split(plain))
        assert context.command_path.startswith(path)
        assert f"  {example}\n" in context.get_help() + "\n"


def test_help_speaks_of_texts_and_files() -> None:
    for path in COMMANDS:
        done = CliRunner().invoke(PROGRAMS[path.split()[0]], [*path.split()[1:], "--help"])
        assert (done.exit_code, re.findall(r"<\w.*?>", done.stdout)) == (0, []), path


def imported(*arguments: str, program: str = "main") -> set[str]:
    """Return the modules that a command imports."""
    code = f"import srm.cli.main; srm.cli.main.{program}()"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return set(re.findall(r"\| +([\w.]+)$", done.stderr, re.MULTILINE))


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("main", ["--help"]),
        ("main", ["--version"]),
        ("main", ["failover", "--help"]),
        ("control_main", ["--help"]),
        ("service_main", ["--help"]),
    ],
)
def test_help_imports_nothing_that_takes_time(program: str, arguments: list[str]) -> None:
    modules = imported(*arguments, program=program)

    assert "typer" in modules
    own = {"pydantic"} if len(arguments) > 1 else set()  # typer reads options with it
    assert {name.partition(".")[0] for name in modules} & HEAVY <= own
    assert len(modules) < 450
    assert len([name for name in modules if name.startswith("srm.")]) < 25


def test_status_imports_only_what_reads_clusters(tmp_path: Path) -> None:
    modules = imported("status", "--config", str(tmp_path / "missing"))

    found = {name.partition(".")[0] for name in modules}
    assert "confluent_kafka" in found
    assert "srm.engine.status.observing" not in modules  # until the clusters were contacted
    assert (
        found
        & {
            *("pyspark", "airflow", "fastapi", "uvicorn", "pandas", "pyarrow", "jinja2", "httpx"),
            "numpy",
            "opentelemetry",
        }
        == set()
    )


@pytest.mark.parametrize(
    "line",
    [
        "failover plan --mode unplaned",
        "failover run --operation fallback",
        "failover run --fence acls",
        "failover run --move-id=",
        "failover run --redirect webhok",
        "why Payments --kind tpic",
        "return settle --flow P:B --default kep",
        "residue export --flow P:B --format parqet --output out",
        "translate --flow P-B --topic T --offset 1",
        "failover report m1 --format pdf",
        "follow --group g --restart sometimes -- true",
    ],
)
def test_a_wrong_word_is_refused_before_any_cluster_is_contacted(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "srm.properties"
    file.write_text(
        "clusters = P, B\nP.bootstrap.servers = 127.0.0.1:1\nB.bootstrap.servers = 127.0.0.1:2\n"
        "P->B.enabled = true\n"
    )
    monkeypatch.setenv("SRM_CONFIG", str(file))
    monkeypatch.setattr(wiring, "KafkaCluster", lambda *_, **__: pytest.fail("contacted"))

    done = CliRunner().invoke(app, line.split())

    code = done.exception.exit_code if isinstance(done.exception, SrmError) else done.exit_code
    assert code == 2


def test_each_exit_code_of_an_error_has_a_meaning_in_help() -> None:
    def codes(of: type[SrmError]) -> set[int]:
        return {of.exit_code}.union(*map(codes, of.__subclasses__()))

    assert codes(SrmError) <= set(EXIT_CODES)
    shown = " ".join(CliRunner().invoke(app, ["--help"]).stdout.split())
    assert all(f"{code} {meaning}" in shown for code, meaning in EXIT_CODES.items())


def test_an_interrupt_while_a_program_is_imported_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(entry, "import_module", interrupted)
    with pytest.raises(SystemExit) as end:
        entry.srm()
    assert end.value.code == 130


def test_a_command_of_a_missing_package_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "srm_lab.cli", None)
    monkeypatch.delitem(sys.modules, "srm_lab.cli.demo", raising=False)

    done = CliRunner().invoke(app, ["demo"])

    assert "needs the package srm_lab" in str(done.exception)


@pytest.mark.parametrize("name", ["x" * 300, "~nobody-of-this-name/file", "latin1"])
@pytest.mark.parametrize(
    "line",
    [
        "status --config {}",
        "config import {}",
        "import srm --flow P:B --yes --list topics={}",
        "failover report verify {}/.json --public-key {}",
        "follow --config {} --group g --topic T -- true",
    ],
)
def test_a_file_that_cannot_be_read_is_bad_input(
    line: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("latin1").write_bytes(b"\xff\xfe = {")
    Path("srm.properties").write_text(
        "clusters = P, B\nP.bootstrap.servers = 127.0.0.1:1\nB.bootstrap.servers = 127.0.0.1:2\n"
    )

    done = CliRunner().invoke(app, line.format(name, name).split())

    assert isinstance(done.exception, SrmError), done.exception
    assert done.exception.exit_code == 2
    assert name in str(done.exception)


def test_a_new_file_with_an_impossible_name_is_bad_input() -> None:
    done = CliRunner().invoke(app, ["init", "--yes", "--output", "x" * 300])

    assert isinstance(done.exception, SrmError), done.exception
    assert done.exception.exit_code == 2
