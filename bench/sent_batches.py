"""Number of batches that a broker has appended, counted in its log files."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

_PREFIX: Final = struct.Struct(">qi")


def log_sizes(data: Path, topics: Iterable[str]) -> dict[Path, int]:
    """Return the bytes of each segment of the topics' partitions, by file."""
    wanted = set(topics)
    return {
        segment: segment.stat().st_size
        for folder in data.iterdir()
        if folder.name.rpartition("-")[0] in wanted
        for segment in folder.glob("*.log")
    }


def count_batches(before: Mapping[Path, int], after: Mapping[Path, int]) -> int:
    """Return the number of batches appended between two looks at the files."""
    return sum(
        _count(segment, before.get(segment, 0), end)
        for segment, end in after.items()
        if end > before.get(segment, 0)
    )


def _count(segment: Path, at: int, end: int) -> int:
    """Count from a batch's first byte to the last batch that begins before the end."""
    count = 0
    with segment.open("rb", buffering=0) as log:
        while at < end:
            log.seek(at)
            prefix = log.read(_PREFIX.size)
            if len(prefix) < _PREFIX.size:
                break
            _, length = _PREFIX.unpack(prefix)
            at += _PREFIX.size + length
            count += 1
    return count
