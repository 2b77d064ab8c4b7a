"""Ranges of offsets, planned first and read afterwards, so that a retry reads the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from srm.errors import UsageError


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets ``[start, end)`` of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offsets [{self.start}, {self.end})"

    @property
    def size(self) -> int:
        """Number of offsets in the range; not all of them need hold a record."""
        return max(0, self.end - self.start)


def both_ends(start: int, end: int) -> str:
    """Return offsets ``[start, end)`` as text for operators, with the last offset included."""
    return f"{start} to {end - 1}"


def split(ranges: Iterable[OffsetRange], size: int) -> tuple[OffsetRange, ...]:
    """Cut ranges into parts of at most ``size`` offsets; empty ranges are dropped."""
    if size <= 0:
        raise UsageError(f"ranges cannot be cut into parts of {size} offsets")
    return tuple(
        OffsetRange(r.topic, r.partition, start, min(start + size, r.end))
        for r in ranges
        for start in range(r.start, r.end, size)
    )
