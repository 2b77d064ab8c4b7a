"""Lines to type that work in a new shell, in any folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console
from tests.unit.cli.filled import filled

from srm_lab.cli import demo, stack
from srm_lab.cli.stack import entering
from srm_lab.stack.stack import StackStatus


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "activate").touch()
    (tmp_path / "bin" / "srm").touch(0o755)
    return tmp_path


def test_a_shell_that_does_not_find_srm_is_told_how_it_does(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    outside = entering("/x/srm.properties", venv=venv)
    monkeypatch.setenv("PATH", str(venv / "bin"))
    inside = entering("/x/srm.properties", venv=venv)

    assert outside == f"  source {venv}/bin/activate\n  export SRM_CONFIG=/x/srm.properties\n"
    assert inside == "  export SRM_CONFIG=/x/srm.properties\n"


def test_the_last_lines_of_demo_and_stack_name_the_file_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "build" / "stack"
    kept = filled(StackStatus, home=str(home), config=str(home / "srm.properties"))
    console = Console(width=200)
    with console.capture() as said:
        demo._invite(console, kept)
        stack._render_up(console, kept)

    told = said.get()
    assert told.count(f"export SRM_CONFIG={home}/srm.properties\n") == 2
    assert told.count(f"srm stack down --home {home}") == 1
    assert "srm_failover.P.B" in told
