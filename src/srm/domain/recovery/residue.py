"""Residue: records that a flow's source holds and its target does not.

Offsets are found by walking both logs; how many records there are, and of when, only by reading
them: markers and aborted transactions have offsets, too.
"""

from __future__ import annotations

import base64
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ResidueRecord:
    """One record of the residue; ``time_ms`` is its own timestamp, -1 if it has none."""

    topic: str
    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class ResidueCount:
    """What was counted in a range; times are the earliest and the latest timestamp.

    ``below`` are the records at offsets lower than each one that was asked for.
    """

    records: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    below: Mapping[int, int] = field(default_factory=dict)


class Counting:
    """Mutable: counts records of one range as they come, in order."""

    def __init__(self, marks: Iterable[int] = ()) -> None:
        """Also count what is before each of some offsets."""
        self._marks = sorted(set(marks))
        self._below = [0] * len(self._marks)
        self._records = 0
        self._first: int | None = None
        self._last: int | None = None

    def take(self, offsets: Sequence[int], times: Sequence[int]) -> None:
        """Count records by their offsets, in order, and timestamps."""
        if not offsets:
            return
        self._records += len(offsets)
        for index, mark in enumerate(self._marks):
            self._below[index] += bisect_left(offsets, mark)
        earliest, latest = min(times), max(times)
        self._first = earliest if self._first is None else min(self._first, earliest)
        self._last = latest if self._last is None else max(self._last, latest)

    @property
    def found(self) -> ResidueCount:
        """What was counted up to now."""
        below = dict(zip(self._marks, self._below, strict=True))
        return ResidueCount(self._records, self._first, self._last, below)


def json_row(record: ResidueRecord) -> dict[str, Any]:
    """Return a record as a JSON object.

    Bytes that are UTF-8 stand as text under their name; others in base64 under that name with
    ``_base64`` behind it. So a reader never has to guess, and nothing is lost.
    """
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "time_ms": record.time_ms,
        **_text("key", record.key),
        **_text("value", record.value),
        "headers": [{"name": name, **_text("value", value)} for name, value in record.headers],
    }


def bytes_of(row: Mapping[str, Any], name: str) -> bytes | None:
    """Return the bytes that :func:`json_row` wrote under a name."""
    if f"{name}_base64" in row:
        return base64.b64decode(row[f"{name}_base64"])
    text: str | None = row[name]
    return None if text is None else text.encode()


def _text(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
