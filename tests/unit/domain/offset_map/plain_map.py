"""The offset map as a plain list of runs, gone through one by one: the arrays must agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from srm.domain.offset_map.offset_map import (
    NoMap,
    NotCopiedYet,
    OffsetMap,
    Position,
    Run,
    Translated,
    Translation,
)


@dataclass(frozen=True)
class PlainMap:
    """Runs in order, and the position."""

    runs: Sequence[Run]
    position: Position

    def forward(self, committed: int) -> Translation:
        for run in self.runs:
            if run.source_end > committed:
                return Translated(run.target_start + max(0, committed - run.source_start))
        if committed > max([self.position.source_next, *(r.source_end for r in self.runs[-1:])]):
            return NotCopiedYet(
                committed
                - max([self.position.source_next, *(r.source_end for r in self.runs[-1:])])
            )
        return Translated(self.runs[-1].target_end) if self.runs else NoMap()

    def backward(self, committed: int) -> Translation:
        end = max([self.position.target_next, *(r.target_end for r in self.runs[-1:])])
        if committed > end:
            return NotCopiedYet(committed - end)
        before = [run for run in self.runs if run.target_start < committed]
        if before:
            return Translated(min(committed, before[-1].target_end) - before[-1].shift)
        return Translated(self.runs[0].source_start) if self.runs else NoMap()

    def targets_between(self, start: int, end: int) -> int:
        return sum(max(0, min(r.target_end, end) - max(r.target_start, start)) for r in self.runs)

    def sources_between(self, start: int, end: int) -> int:
        return sum(max(0, min(r.source_end, end) - max(r.source_start, start)) for r in self.runs)


def agree(offsets: OffsetMap, plain: PlainMap, upto: int) -> None:
    """Compare all answers below an offset."""
    for offset in range(-1, upto):
        if plain.runs:
            assert offsets.forward(offset) == plain.forward(offset), offset
            assert offsets.backward(offset) == plain.backward(offset), offset
        for start in (0, offset // 2, offset + 3):
            assert offsets.records_between(start, offset) == plain.targets_between(start, offset)
            assert offsets.source_records_between(start, offset) == plain.sources_between(
                start, offset
            )
