"""docs/capacity.md shows what the command prints."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

from srm.cli.main import app

PAGE = (Path(__file__).parents[3] / "docs" / "capacity.md").read_text("utf-8")


def test_the_example_is_what_is_printed() -> None:
    """Paste the command's output again after a change of coefficients."""
    found = re.search(r"```\n\$ srm (capacity .*)\n((?:.+\n)+)```", PAGE)
    assert found is not None

    printed = CliRunner().invoke(app, found[1].split()).stdout

    lines = [line.rstrip() for line in printed.splitlines()]
    assert found[2].splitlines() == lines
