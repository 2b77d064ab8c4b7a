"""The page of commands is what the commands say of themselves."""

from __future__ import annotations

from pathlib import Path

from srm.cli.docs import render

PAGE = Path(__file__).parents[3] / "docs" / "commands.md"


def test_every_command_and_option_is_documented() -> None:
    """Run ``python -m srm.cli.docs`` after a change of a command."""
    assert PAGE.read_text("utf-8") == render()


def test_every_option_has_a_help_text() -> None:
    bare = [line for line in render().splitlines() if line.startswith("* `-") and "`: " not in line]

    assert bare == []
