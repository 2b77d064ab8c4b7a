"""Numbers with their nouns, for sentences that people read."""

from __future__ import annotations


def amount(count: int, noun: str) -> str:
    """Return e.g. ``1 record`` or ``1,200 records``: the plural of ``noun`` is made with an s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
