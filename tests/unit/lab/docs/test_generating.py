"""The generators of documents write where they are told to, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from srm_lab.docs import client, commands, configuration, metrics, report

GENERATORS = [client.main, commands.main, configuration.main, metrics.main, report.main]


@pytest.mark.parametrize("generate", GENERATORS, ids=lambda one: one.__module__)
@pytest.mark.parametrize(
    ("arguments", "code"), [(["--help"], 0), (["--check"], 2), (["one.md", "another.md"], 2)]
)
def test_what_is_no_path_writes_nothing(
    generate: Callable[[list[str]], None],
    arguments: list[str],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SystemExit) as ended:
        generate(arguments)

    assert ended.value.code == code
    assert not list(tmp_path.iterdir())


def test_a_document_goes_to_the_file_that_is_named(tmp_path: Path) -> None:
    report.main([str(tmp_path / "report.json")])

    assert (tmp_path / "report.json").read_text("utf-8") == report.render()


def test_the_help_says_where_the_document_goes_otherwise(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "srm_lab.docs.report", "--help"]

    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert "docs/report.schema.json" in told.stdout
