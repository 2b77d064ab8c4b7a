"""Writes docs/features.md from tests/features.txt: ``python -m tests.features [FILE]``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from srm_lab.docs.page import write

TESTS: Final = Path(__file__).parent
PAGE: Final = Path("docs/features.md")
_HEAD: Final = """\
# Features

<!-- Written by `python -m tests.features` from tests/features.txt. -->

What Streams Replication Manager 7.3.2 and MirrorMaker 2 4.3.1 can do, what srm does in its place,
and the test below `tests/` that shows it. *Open* is missing here; *no* has no meaning here.

| feature | srm | test |
|---|---|---|
"""


class Feature(NamedTuple):
    """One row: a feature, srm's answer, and ``path::name`` of the test that shows it."""

    name: str
    answer: str
    test: str


def read() -> dict[str, list[Feature]]:
    """Return the features by chapter."""
    chapters: dict[str, list[Feature]] = {}
    for line in (TESTS / "features.txt").read_text("utf-8").splitlines():
        if line.startswith("## "):
            chapters[line[3:]] = rows = []
        elif line and not line.startswith("#"):
            name, answer, test = (part.strip() for part in line.split(" |"))
            rows.append(Feature(name, answer, test))
    return chapters


def render() -> str:
    """Return the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD.rstrip()
    for chapter, features in read().items():
        yield f"| **{chapter}** | | |"
        for name, answer, test in features:
            yield f"| {name} | {answer} | {f'`{test}`' if test else ''} |"


if __name__ == "__main__":
    write(lambda _: render(), PAGE, __doc__, sys.argv[1:])
