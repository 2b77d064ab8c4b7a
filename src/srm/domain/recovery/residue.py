"""Residue: records that a flow's source holds and its target does not.

Offsets are found by comparing both logs. The number of records and their times are known only by
reading them, as markers and aborted transactions have offsets, too.
"""

from __future__ import annotations

import base64
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.offset_map.offset_ranges import OffsetRange

Wanted = tuple[AssignedPartition, OffsetRange]
"""A range of source offsets of a partition."""


@dataclass(frozen=True, slots=True)
class ResidueRecord:
    """One record of the residue; ``timestamp`` is in epoch milliseconds, -1 for none."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


class Counting:
    """Mutable counter of the records of one range, in order.

    ``first_ms`` and ``last_ms`` are the earliest and the latest timestamp.
    ``below`` has the number of records before each mark.
    """

    def __init__(self, marks: Iterable[int] = ()) -> None:
        """Start with offsets before which records are counted separately."""
        self.below = dict.fromkeys(marks, 0)
        self.records = 0
        self.first_ms: int | None = None
        self.last_ms: int | None = None

    def take(self, offsets: Sequence[int], times: Sequence[int]) -> None:
        """Count records by their offsets, in order, and timestamps."""
        if not offsets:
            return
        self.records += len(offsets)
        for mark in self.below:
            self.below[mark] += bisect_left(offsets, mark)
        earliest, latest = min(times), max(times)
        self.first_ms = earliest if self.first_ms is None else min(self.first_ms, earliest)
        self.last_ms = latest if self.last_ms is None else max(self.last_ms, latest)


def json_row(record: ResidueRecord) -> dict[str, Any]:
    """Return a record as a JSON object.

    UTF-8 bytes are text under their name. Others are base64 under that name with the suffix
    ``_base64``. So a reader never has to guess, and nothing is lost.
    """
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "time_ms": record.timestamp,
        **_text("key", record.key),
        **_text("value", record.value),
        "headers": [{"name": name, **_text("value", value)} for name, value in record.headers],
    }


def _text(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
