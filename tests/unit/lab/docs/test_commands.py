"""The page of commands is what the commands say of themselves."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from srm.cli.main import app
from srm_lab.docs.commands import render

PAGE = Path(__file__).parents[4] / "docs" / "commands.md"


def test_the_page_is_what_the_commands_say() -> None:
    """Run ``python -m srm_lab.docs.commands`` after a change of a command."""
    assert PAGE.read_text("utf-8") == render()


def test_every_command_and_option_is_documented() -> None:
    sections = re.split(r"^#+ ", render(), flags=re.MULTILINE)
    head, settings = sections[1], sections[-1]
    missing = []

    def visit(command: object, path: str) -> None:
        own = next((one for one in sections if one.startswith(f"`{path}`\n")), "")
        shown = own + head + (settings if "settings of a move" in own else "")
        for parameter in getattr(command, "params", ()):
            long = [option for option in parameter.opts if option.startswith("--")]
            missing.extend(f"{path} {one}" for one in long if one not in shown)
        for name, child in getattr(command, "commands", {}).items():
            visit(child, f"{path} {name}")

    visit(typer.main.get_command(app), "srm")
    assert missing == []


def test_every_option_has_a_help_text() -> None:
    lines = [line for line in render().splitlines() if line.startswith("* `-")]

    assert len(lines) > 80
    assert [line for line in lines if not re.fullmatch(r"\* `[^`]+`: \S.*", line)] == []
