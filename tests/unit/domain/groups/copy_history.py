"""What happened to one partition and its copy, record by record, and what follows for a group.

The oracle of the translation: it knows neither runs nor positions, it walks the two logs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from hypothesis import strategies as st

from srm.domain.flow_state.replication_records import PartitionNotes
from srm.domain.groups.translation import Direction, LogRange, Losses, PartitionFacts
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.offset_map import OffsetMap, Position, Run

ORIGINAL, COPY = TopicPartition("Payments", 0), TopicPartition("P.Payments", 0)
Kind = Literal["record", "marker", "refused"]


@dataclass(frozen=True)
class History:
    """An original (P) and its copy (B); offsets are indices.

    Attributes:
        original: what stands at each offset; ``refused`` is a record that is never copied.
        began: first offset the replication looked at.
        copied: offset it has come to, at most ``stable``: a transaction may be open from there on.
        copy: for each offset of the copy the offset of the original, None for a marker.
        reported: end of the copy when the position was reported.
        starts: first offset that each log still holds.
    """

    original: tuple[Kind, ...]
    began: int
    copied: int
    stable: int
    copy: tuple[int | None, ...]
    reported: int
    starts: tuple[int, int]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Offsets of every record that was copied: original, copy."""
        return [(source, place) for place, source in enumerate(self.copy) if source is not None]

    @property
    def refused(self) -> list[int]:
        """Offsets of records that were passed over."""
        seen = range(self.began, self.copied)
        return [offset for offset in seen if self.original[offset] == "refused"]

    @property
    def notes(self) -> tuple[PartitionNotes, ...]:
        """What the slot has noted: of all ranges but the newest only the number."""
        note = PartitionNotes("0", "Payments", 0, "id")
        for offset in self.refused:
            note = note.with_loss(offset, offset + 1, "too large", 0)
        return (note,) if self.refused else ()

    @property
    def offset_map(self) -> OffsetMap:
        position = Position(self.copied, self.reported, self.stable)
        return OffsetMap.of([Run(*p, 1) for p in self.pairs], position, open_end=False)

    @property
    def original_log(self) -> LogRange:
        return LogRange(self.starts[0], self.stable, len(self.original))

    @property
    def copy_log(self) -> LogRange:
        return LogRange(self.starts[1], len(self.copy), len(self.copy))

    def facts(self, direction: Direction) -> PartitionFacts:
        """What srm reads of it, with all ranges noted."""
        losses = Losses(tuple((offset, offset + 1) for offset in self.refused))
        logs = self.original_log, self.copy_log
        if direction == "forward":
            return PartitionFacts(
                direction, ORIGINAL, COPY, "B", *logs, self.offset_map, losses=losses
            )
        return PartitionFacts(
            direction, COPY, ORIGINAL, "P", *logs[::-1], self.offset_map, losses=losses
        )

    def to_read(self, direction: Direction, commit: int) -> list[int]:
        """Offsets in the original of copied records the group finds on the other side."""
        side, other = (0, 1) if direction == "forward" else (1, 0)
        return [p[0] for p in self.pairs if p[side] >= commit and p[other] >= self.starts[other]]

    def skipped(self, direction: Direction, commit: int) -> int:
        """Count what the group could read on its side and does not find on the other."""
        side, other = (0, 1) if direction == "forward" else (1, 0)
        start = max(commit, self.starts[side])
        dropped = sum(p[side] >= start and p[other] < self.starts[other] for p in self.pairs)
        if direction == "reverse":
            return dropped
        refused = [offset for offset in self.refused if offset >= start]
        before = range(start, self.pairs[0][0] if self.pairs else start)
        return dropped + len(set(refused) | set(before))


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Draw holes of all kinds on both sides, a copy that is behind, a transaction, trimmed logs."""
    kinds = st.sampled_from(["record", "record", "record", "marker", "refused"])
    original = tuple(draw(st.lists(kinds, max_size=14)))
    stable = draw(st.just(len(original)) | st.integers(0, len(original)))
    began = draw(st.just(0) | st.integers(0, stable))
    copied = draw(st.just(stable) | st.integers(began, stable))
    copy: list[int | None] = []
    for offset in range(began, copied):
        copy += [None] * draw(st.integers(0, 1))
        if original[offset] == "record":
            copy.append(offset)
    while copy and copy[-1] is None:
        copy.pop()
    reported = len(copy)
    copy += [None] * draw(st.integers(0, 2))
    reported = draw(st.integers(reported, len(copy)))
    drawn = History(original, began, copied, stable, tuple(copy), reported, (0, 0))
    starts = (
        draw(st.just(0) | st.integers(0, len(original))),
        draw(st.just(0) | st.integers(0, len(copy))),
    )
    return replace(drawn, starts=starts)
