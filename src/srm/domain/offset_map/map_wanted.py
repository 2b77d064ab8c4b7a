"""Offsets that a caller needs from an offset map, so that only those are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from srm.domain.names.topics import TopicPartition


@dataclass(frozen=True, slots=True)
class Wanted:
    """Wanted offsets of one partition; the position is always wanted.

    Attributes:
        sources: source offsets to translate, or to count from or up to.
        targets: the same for the target.
        source_ranges: source offsets [from, to) of which every run is wanted.
    """

    sources: frozenset[int] = frozenset()
    targets: frozenset[int] = frozenset()
    source_ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, sources: Iterable[int | None] = (), targets: Iterable[int | None] = ()) -> Self:
        """Build it from offsets; None is ignored."""
        return cls(
            frozenset(offset for offset in sources if offset is not None),
            frozenset(offset for offset in targets if offset is not None),
        )

    def covers(self, other: Wanted) -> bool:
        """Return True if this includes all offsets of the other."""
        return (
            self.sources >= other.sources
            and self.targets >= other.targets
            and set(self.source_ranges) >= set(other.source_ranges)
        )

    def __or__(self, other: Wanted) -> Wanted:
        return Wanted(
            self.sources | other.sources,
            self.targets | other.targets,
            self.source_ranges + other.source_ranges,
        )


WantedOffsets = Mapping[TopicPartition, Wanted]
"""Wanted offsets by source partition; of other partitions only the position is wanted."""

ALL_RUNS = Wanted(source_ranges=((-1, 2**63 - 1),))
