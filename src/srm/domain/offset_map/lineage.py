"""Lineage of a log: the leader epochs under which it was written, with their start offsets.

Brokers keep the same list, the leader epoch cache. All logs that hold a leader epoch up to an
offset are equal before that offset. So two logs are equal up to the end of the last epoch in both.
Followers truncate there (KIP-101, KIP-279).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

MOST_EPOCHS: Final = 16
"""Maximum epochs that are kept before a position, the latest ones."""


class EpochRange(NamedTuple):
    """Offsets [start, end) of a leader epoch, as read; not ``is_exact``: it may begin earlier."""

    epoch: int
    start: int
    end: int
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class Lineage:
    """Leader epochs of a log with their start offsets, both ascending.

    An epoch begins after the last offset that was read of the earlier ones, and ends at the start
    of the next one. The first epoch may have begun before its start, where the lineage begins.
    """

    starts: tuple[tuple[int, int], ...] = ()

    def __bool__(self) -> bool:
        """Return whether any epoch is known."""
        return bool(self.starts)

    @property
    def epoch(self) -> int:
        """The latest leader epoch, -1 if none is known."""
        return self.starts[-1][0] if self.starts else -1

    @property
    def begin(self) -> int:
        """Offset before which nothing is known; 0 without an epoch."""
        return self.starts[0][1] if self.starts else 0

    def with_epoch(self, epoch: int, start: int) -> Lineage:
        """Return the lineage with the epoch of a batch that was read from an offset on.

        As in a broker's cache, an epoch replaces each one that is not lower or does not begin
        before it. A batch of unknown epoch (-1: an old format) makes the lineage unknown.
        """
        if epoch == self.epoch:
            return self
        if epoch < 0:
            return UNKNOWN
        kept = (one for one in self.starts if one[0] < epoch and one[1] < start)
        return Lineage((*kept, (epoch, start)))

    def with_unread(self, epoch: int, start: int) -> Lineage | None:
        """Return the lineage with an epoch not read, or not from its start; None on a conflict."""
        before = self.before(start)
        after = self.starts[len(before.starts) :]
        after = after[1:] if after and after[0][0] == epoch else after
        if epoch <= before.epoch or (after and (after[0][0] <= epoch or after[0][1] <= start)):
            return None
        return Lineage((*before.starts, (epoch, start), *after)[-MOST_EPOCHS:])

    def before(self, offset: int) -> Lineage:
        """Return the lineage of the log before an offset, with the latest epochs there."""
        if len(self.starts) <= MOST_EPOCHS and (not self or self.starts[-1][1] < offset):
            return self
        return Lineage(tuple(one for one in self.starts if one[1] < offset)[-MOST_EPOCHS:])

    def distances(self, end: int) -> Iterator[int]:
        """Yield two small numbers for each epoch of a log that ends at an offset."""
        later = 0
        for epoch, start in reversed(self.starts):
            yield later - epoch
            yield end - start
            later, end = epoch, start

    @classmethod
    def from_distances(cls, distances: Iterator[int], count: int, end: int) -> Lineage:
        """Read the :meth:`distances` of a number of epochs."""
        epoch, starts = 0, []
        for _ in range(count):
            epoch, end = epoch - next(distances), end - next(distances)
            starts.append((epoch, end))
        return cls(tuple(reversed(starts)))

    def latest_first(self, end: int) -> Iterator[EpochRange]:
        """Yield the epochs of a log that ends at an offset."""
        for index in range(len(self.starts) - 1, -1, -1):
            epoch, start = self.starts[index]
            yield EpochRange(epoch, start, end, bool(index or not start))
            end = start


UNKNOWN: Final = Lineage()
"""Lineage of a log of which nothing was read."""
