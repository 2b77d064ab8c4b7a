"""docs/operate.md names every subcommand and option."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from srm.cli.main import control

PAGE = (Path(__file__).parents[4] / "docs" / "operate.md").read_text("utf-8")
COMMANDS = typer.main.get_command(control).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_page_names_the_command_and_its_options(command: str) -> None:
    assert f"srm-control {command} " in PAGE
    options = [option for parameter in COMMANDS[command].params for option in parameter.opts]
    assert [option for option in options if option not in PAGE] == []
