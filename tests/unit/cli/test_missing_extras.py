"""A command whose extra is not installed says in one line how to install it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import typer

from srm.cli.console import run_cli
from srm.extras import _LIBRARIES, DISTRIBUTION, missing_extra

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]


def run(missing: str, monkeypatch: pytest.MonkeyPatch) -> int:
    app = typer.Typer()

    @app.command()
    def lacking() -> None:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr("sys.argv", ["srm"])
    with pytest.raises(SystemExit) as end:
        run_cli(app)
    assert isinstance(end.value.code, int)
    return end.value.code


def test_a_missing_library_of_an_extra_is_one_line_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("pyspark.sql", monkeypatch) == 2
    assert capsys.readouterr().err == (
        "srm: this needs the extra spark: pyspark is not installed; "
        "pip install 'kafka-srm[spark]'\n"
    )


@pytest.mark.parametrize(
    ("module", "extra"), [("srm_lab.cli.stack", "lab"), ("srm.spark.jobs", "spark")]
)
def test_what_needs_the_whole_of_an_extra_names_that(module: str, extra: str) -> None:
    """It uses libraries that are in other extras, too."""
    with pytest.raises(ModuleNotFoundError) as raised:
        exec("raise ModuleNotFoundError('No module', name='pyarrow')", {"__name__": module})  # noqa: S102

    assert f"kafka-srm[{extra}]" in str(missing_extra(raised.value))


def test_a_missing_module_of_no_extra_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("srm.nowhere", monkeypatch) == 1


def test_each_extra_that_a_command_names_exists() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    assert set(_LIBRARIES) < set(PROJECT["optional-dependencies"])
