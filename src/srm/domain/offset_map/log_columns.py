"""Records of a log as columns, and the places of one log's records among those of another. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from srm.domain.offset_map.runs import Offsets

KEYED: Final = 1
TOMBSTONE: Final = 2
OPTIONAL: Final = 4
"""Bits of a record's kind: it has a key; no value; it need not be copied."""

_COMPARED: Final = 1024
_NEAREST: Final = 16
"""Candidates of a chunk on each side that the next contents narrow down, and that are ranked."""


@dataclass(frozen=True)
class Columns:
    """Consecutive records of a log: offsets, hashes of contents and of keys, kinds."""

    offsets: Offsets
    contents: Offsets
    keys: Offsets
    kinds: npt.NDArray[np.uint8]

    @classmethod
    def concatenate(cls, parts: Sequence[Columns]) -> Columns:
        """Return the records of all parts, one after the other."""
        return cls(
            np.concatenate([part.offsets for part in parts]),
            np.concatenate([part.contents for part in parts]),
            np.concatenate([part.keys for part in parts]),
            np.concatenate([part.kinds for part in parts]),
        )

    def after(self, count: int) -> Columns:
        """Return the records after the first ones."""
        return Columns(
            self.offsets[count:], self.contents[count:], self.keys[count:], self.kinds[count:]
        )

    def __len__(self) -> int:
        return len(self.offsets)

    @cached_property
    def marks(self) -> npt.NDArray[np.bool_]:
        """Marks of the records that are on the other side; changed in place."""
        return np.zeros(len(self), np.bool_)

    @cached_property
    def _order(self) -> npt.NDArray[np.intp]:
        return np.argsort(self.contents, kind="stable")

    @cached_property
    def _in_order(self) -> Offsets:
        return self.contents[self._order]

    def nearest(self, contents: Offsets, here: int) -> Sequence[int]:
        """Return indexes of the first of some contents, nearest to an index.

        Of very many the ones that the following contents follow, too.
        """
        ends = (np.searchsorted(self._in_order, contents[0], side) for side in ("left", "right"))
        found = _around(self._order[slice(*ends)], here, _COMPARED)
        for step in range(1, len(contents)):
            if len(found) <= 2 * _NEAREST:
                break
            following = self.contents[np.minimum(found + step, len(self) - 1)]
            if not (agrees := following == contents[step]).any():
                break
            found = found[agrees]
        indexes: list[int] = _around(found, here, _NEAREST).tolist()
        return indexes

    def find(self, contents: Offsets) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int8]]:
        """Return for each content one of its indexes, and whether it has none, one, or more (2)."""
        last = len(self) - 1
        at = np.searchsorted(self._in_order, contents)
        first, second = np.minimum(at, last), np.minimum(at + 1, last)
        has = self._in_order[first] == contents
        has_more = has & (second > first) & (self._in_order[second] == contents)
        return self._order[first], has.astype(np.int8) + has_more


def _around(places: npt.NDArray[np.intp], here: int, count: int) -> npt.NDArray[np.intp]:
    middle = int(np.searchsorted(places, here))
    return places[max(0, middle - count) : middle + count]


@dataclass(frozen=True)
class SourcePlaces:
    """Places of a target's records in what is known of the source.

    Attributes:
        counts: how many each has: none, one, or more (2).
        chunks: the number of the chunk of a single place.
        places: a single place in its chunk.
    """

    counts: npt.NDArray[np.int8]
    chunks: npt.NDArray[np.intp]
    places: npt.NDArray[np.intp]

    @classmethod
    def among(cls, chunks: Iterable[Columns], contents: Offsets) -> SourcePlaces:
        """Look some contents up in all chunks."""
        counts = np.zeros(len(contents), np.int8)
        numbers, places = np.zeros(len(contents), np.intp), np.zeros(len(contents), np.intp)
        for number, chunk in enumerate(chunks):
            at, more = chunk.find(contents)
            is_here = more > 0
            numbers[is_here], places[is_here] = number, at[is_here]
            counts = np.minimum(counts + more, 2)
        return cls(counts, numbers, places)

    @cached_property
    def _known_places(self) -> npt.NDArray[np.intp]:
        return np.flatnonzero(self.counts)

    @cached_property
    def _breaks(self) -> npt.NDArray[np.intp]:
        """Records that a stretch of single places, in order in one chunk, does not reach."""
        joins = (self.counts[1:] == 1) & (np.diff(self.chunks) == 0) & (np.diff(self.places) > 0)
        return np.append(np.flatnonzero(~joins) + 1, len(self.counts))

    def next_known(self, first: int) -> int:
        """Return the next record from one on that has a place, or the number of records."""
        at = int(np.searchsorted(self._known_places, first))
        return int(self._known_places[at]) if at < len(self._known_places) else len(self.counts)

    def stretch(self, first: int) -> npt.NDArray[np.intp]:
        """Return the single places from a record on that are in order in one chunk."""
        if self.counts[first] != 1:
            return self.places[:0]
        end = int(self._breaks[np.searchsorted(self._breaks, first, "right")])
        return self.places[first:end]
