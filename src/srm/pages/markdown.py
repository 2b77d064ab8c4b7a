"""Parts of Markdown texts: tables, lists and escaped text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

_MARKUP: Final = re.compile(r"([\\`*_{}\[\]<>#|~])")


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], most: int | None = None
) -> Iterator[str]:
    """Yield the lines of a table; rows beyond ``most`` are counted."""
    lines = [f"| {' | '.join(escape(cell) for cell in row)} |" for row in rows]
    yield f"| {' | '.join(map(escape, head))} |"
    yield f"|{'---|' * len(head)}"
    yield from lines[:most]
    yield ""
    if most is not None and len(lines) > most:
        yield f"and {len(lines) - most} more"
        yield ""


def bullets(label: str, lines: Sequence[str], most: int | None = None) -> Iterator[str]:
    """Yield the lines of a list; those beyond ``most`` are counted."""
    for line in islice(lines, most):
        yield f"- {label}: {escape(line)}"
    if most is not None and len(lines) > most:
        yield f"- {label}: {len(lines) - most} more"
    if lines:
        yield ""


def escape(text: str) -> str:
    """Escape Markdown and join the text to one line."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))
