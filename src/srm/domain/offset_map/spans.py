"""Both sides of an offset map as sorted arrays, for bisection that never guesses.

A *span* is a run or a stretch that was not loaded. A run has the place of each record. A stretch
has both ends and a record count from the index. That suffices to count across it, and to translate
an offset at its ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from srm.domain.offset_map.map_index import Entries
from srm.domain.offset_map.offset_ranges import both_ends
from srm.domain.offset_map.runs import Offsets, Runs
from srm.errors import NotLoadedError

_FAR: Final = np.int64(2**63 - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Spans in map order; ``before`` counts the records before each, and at last all records."""

    source_start: Offsets
    source_end: Offsets
    target_start: Offsets
    target_end: Offsets
    before: Offsets

    @classmethod
    def of_parts(cls, parts: Iterable[Runs | Entries]) -> Self:
        """Return loaded and other stretches as spans, in map order."""
        columns = [
            (part.sources, part.source_ends, part.targets, part.target_ends, part.counts)
            if isinstance(part, Runs)
            else (
                part.source_start,
                part.source_end,
                part.target_start,
                part.target_end,
                part.records,
            )
            for part in parts
        ]
        empty = np.empty(0, np.int64)
        joined = [np.concatenate(column) for column in zip(*columns, strict=True)] or [empty] * 5
        return cls(joined[0], joined[1], joined[2], joined[3], _sums(joined[4]))

    def __len__(self) -> int:
        return len(self.source_start)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Spans):
            return NotImplemented
        return (
            np.array_equal(self.source_start, other.source_start)
            and np.array_equal(self.source_end, other.source_end)
            and np.array_equal(self.target_start, other.target_start)
            and np.array_equal(self.target_end, other.target_end)
            and np.array_equal(self.before, other.before)
        )

    __hash__ = None  # type: ignore[assignment] # arrays have none

    @property
    def records(self) -> int:
        """Number of records in all spans."""
        return int(self.before[-1])

    @property
    def runs(self) -> Runs:
        """The spans that are runs."""
        counts = np.diff(self.before)
        own = (self.source_end - self.source_start == counts) & (
            self.target_end - self.target_start == counts
        )
        return Runs(self.source_start[own], self.target_start[own], counts[own])

    def forward(self, source_offset: int) -> int | None:
        """Return the target offset of the first record at or after a source offset, if any."""
        at = int(self.source_end.searchsorted(source_offset, "right"))
        if at == len(self):
            return None
        inside = max(0, source_offset - int(self.source_start[at]))
        if inside:
            self._require_run(at, "source offset", source_offset)
        return int(self.target_start[at]) + inside

    def backward(self, target_offset: int) -> int | None:
        """Return the source offset after the last record before a target offset, None if none."""
        at = int(self.target_start.searchsorted(target_offset, "left")) - 1
        if at < 0:
            return None
        if target_offset >= int(self.target_end[at]):
            return int(self.source_end[at])
        self._require_run(at, "target offset", target_offset)
        return target_offset - int(self.target_start[at]) + int(self.source_start[at])

    def next_source(self, source_offset: int) -> int | None:
        """Return the first source offset at or after an offset that a span covers, if any."""
        at = int(self.source_end.searchsorted(source_offset, "right"))
        return None if at == len(self) else max(source_offset, int(self.source_start[at]))

    def before_source(self, offset: int) -> int:
        """Count the records before a source offset."""
        at = int(self.source_start.searchsorted(offset, "left")) - 1
        return self._before(at, offset, self.source_start, self.source_end)

    def before_target(self, offset: int) -> int:
        """Count the records before a target offset."""
        at = int(self.target_start.searchsorted(offset, "left")) - 1
        return self._before(at, offset, self.target_start, self.target_end)

    def _before(self, at: int, offset: int, starts: Offsets, ends: Offsets) -> int:
        if at < 0:
            return 0
        if offset >= int(ends[at]):
            return int(self.before[at + 1])
        self._require_run(at, "offset", offset)
        return int(self.before[at]) + offset - int(starts[at])

    def _require_run(self, at: int, what: str, offset: int) -> None:
        records = self.before[at + 1] - self.before[at]
        if (
            self.source_end[at] - self.source_start[at] != records
            or self.target_end[at] - self.target_start[at] != records
        ):
            raise NotLoadedError(
                f"{what} {offset} is in a part of the offset map that was not loaded: "
                f"source offsets {both_ends(self.source_start[at], self.source_end[at])}"
            )


def _sums(counts: Offsets) -> Offsets:
    sums = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


@dataclass(frozen=True, slots=True)
class Cuts:
    """Parts of earlier entries that later ones remove, after a truncation of source or target.

    ``sources`` and ``targets`` are the first lost offsets of each. Nothing is left of ``gone``, a
    part of ``cut`` ones, which must be loaded.
    """

    sources: Offsets
    targets: Offsets
    gone: frozenset[int]
    cut: frozenset[int]

    @classmethod
    def between(cls, entries: Entries) -> Self:
        """Compare each entry with those after it."""
        sources, targets = _lowest_after(entries.source_start), _lowest_after(entries.target_start)
        gone = (entries.source_start >= sources) | (entries.target_start >= targets)
        cut = (entries.source_end > sources) | (entries.target_end > targets)
        return cls(
            sources,
            targets,
            frozenset(np.flatnonzero(gone).tolist()),
            frozenset(np.flatnonzero(cut & ~gone).tolist()),
        )


def _lowest_after(starts: Offsets) -> Offsets:
    lowest = np.full(len(starts), _FAR, np.int64)
    if len(starts) > 1:
        lowest[:-1] = np.minimum.accumulate(starts[:0:-1])[::-1]
    return lowest


def window_parts(entries: Entries, loaded: Mapping[int, Runs]) -> list[Runs | Entries]:
    """Return each entry in order, or its runs if loaded; NotLoadedError for a cut one without."""
    cuts = Cuts.between(entries)
    if missing := cuts.cut - loaded.keys():
        raise NotLoadedError(
            f"the offset map was cut, and the part from source offset "
            f"{entries.source_start[min(missing)]} on was not loaded"
        )
    parts: list[Runs | Entries] = []
    done = 0
    for number in sorted(loaded.keys() | cuts.gone):
        if number > done:
            parts.append(entries.slice(done, number).with_records())
        done = number + 1
        if number not in cuts.gone:
            limits = int(cuts.sources[number]), int(cuts.targets[number])
            parts.append(loaded[number].with_records().before(*limits))
    if done < len(entries):
        parts.append(entries.slice(done).with_records())
    return parts
