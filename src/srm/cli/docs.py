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
from srm.generating import write

DEFAULT_PATH: Final = Path("docs/commands.md")


def render() -> str:
    """Return the page."""
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="srm")
    page = get_docs_for_click(obj=command, ctx=context, name="srm", title="The srm command")
    return page.rstrip() + "\n"


def main(arguments: list[str]) -> None:
    """Write the page to the given file, by default into docs/."""
    write(lambda _: render(), DEFAULT_PATH, __doc__, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
