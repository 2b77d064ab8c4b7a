"""A batch to send, and its source records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from srm.domain.offset_map.offset_map import Run


@dataclass(slots=True)
class BatchToSend:
    """One batch on its way: passed through, or rebuilt from one or several.

    ``stretches`` are (first source offset, count) of consecutive records, in order; a batch that
    passes through has one. ``source_next`` is the source offset after the original batches and
    what is dropped between them, ``leader_epoch`` that of the batch before it. ``owner`` keeps the
    memory behind ``view``. ``is_merged``: it was made of several.
    """

    view: memoryview
    count: int
    stretches: list[tuple[int, int]]
    source_next: int
    leader_epoch: int
    max_timestamp: int
    owner: object
    is_merged: bool = False

    def runs(self, target_start: int) -> list[Run]:
        """Return the offset runs of the batch if it begins at ``target_start``."""
        runs = []
        for source_start, count in self.stretches:
            runs.append(Run(source_start, target_start, count))
            target_start += count
        return runs

    def offsets(self) -> list[int]:
        """Return the source offset of each record."""
        return [first + index for first, count in self.stretches for index in range(count)]


class Dropped(NamedTuple):
    """Nothing before ``source_next`` is left to send; the epoch is as in :class:`BatchToSend`."""

    source_next: int
    leader_epoch: int
