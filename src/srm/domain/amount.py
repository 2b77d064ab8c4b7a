"""Numbers with their nouns, for sentences that people read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_NAMED: Final = 8
"""Names that a sentence holds."""


def amount(count: int, noun: str) -> str:
    """Return e.g. ``1 record`` or ``1,200 records``: the plural of ``noun`` is made with an s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def some(names: Sequence[str]) -> str:
    """Name a few; on a cluster that many teams share thousands of groups may be meant."""
    more = len(names) - _NAMED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_NAMED])} and {more:,} more"
