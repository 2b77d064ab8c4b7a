"""docs/operate.md names each step, each state of health and each command that can be watched."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import typer

from srm.cli.main import app
from srm.engine import why
from srm.engine.status.status import State

PAGE = (Path(__file__).parents[4] / "docs" / "operate.md").read_text("utf-8")
NAMED = re.compile(r'Question\(\s*"([a-z-]+)"')


def test_each_step_is_on_the_page_and_no_other() -> None:
    folder = Path(why.__file__).parent
    names = {
        name for file in folder.glob("*.py") for name in NAMED.findall(file.read_text("utf-8"))
    }
    section = PAGE.split("\n## srm why\n")[1].split("\n## ", maxsplit=1)[0]
    tables = "".join(line for line in section.splitlines(keepends=True) if line.startswith("| `"))
    told = {
        name
        for row in tables.splitlines()
        for name in re.findall(r"`([a-z-]+)`", row.split("|")[1])
    }

    assert len(names) > 20
    assert names == told


def test_each_state_is_on_the_page() -> None:
    assert re.findall(r"^\| ([A-Z]+) \|", PAGE, re.MULTILINE) == list(get_args(State))


def test_each_command_that_can_be_watched_is_on_the_page() -> None:
    watched = []

    def visit(command: object, path: str) -> None:
        for name, child in getattr(command, "commands", {}).items():
            visit(child, f"{path} {name}")
        if any("--watch" in one.opts for one in getattr(command, "params", ())):
            watched.append(path)

    visit(typer.main.get_command(app), "srm")
    [said] = re.findall(r"`--watch \[SECONDS\]` of (.*?) looks again", PAGE, re.DOTALL)

    assert sorted(re.findall(r"`(srm [a-z ]+)`", said)) == sorted(watched)
