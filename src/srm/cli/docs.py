"""Write docs/commands.md: every command and option of srm, from their own help.

python -m srm.cli.docs
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import typer
from typer.cli import get_docs_for_click

from srm.cli.main import app
from srm.cli.moves.failover_options import description
from srm.domain.moves.records.request import FORM
from srm.generating import write

DEFAULT_PATH: Final = Path("docs/commands.md")


def render() -> str:
    """Return the page."""
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="srm")
    page = get_docs_for_click(obj=command, ctx=context, name="srm", title="The srm command")
    return f"{page.rstrip()}\n\n{_settings()}"


def _settings() -> str:
    """Return the table of the settings of a move."""
    rows = [
        "## Settings of a move",
        "",
        "The forms of Airflow and of *Plan a move*, and the conf of a run, have these keys.",
        "",
        "| key | option | default | meaning |",
        "|---|---|---|---|",
    ]
    for each in FORM.values():
        option = f"`{each.option}`" if each.option else ""
        default = f"{each.default:g}" if each.kind == "seconds" else each.default or ""
        rows.append(f"| `{each.name}` | {option} | {default} | {description(each)} |")
    return "\n".join(rows) + "\n"


def main(arguments: list[str]) -> None:
    """Write the page to the given file, by default into docs/."""
    write(lambda _: render(), DEFAULT_PATH, __doc__, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
