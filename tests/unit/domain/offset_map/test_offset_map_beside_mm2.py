"""The exact translation beside MM2's: never behind it, never past the truth.

MM2's OffsetSyncStore keeps 64 offset syncs per partition, ever sparser going back. It is built here
again, after its description, as the measure for our own translation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.offset_map.offset_map import OffsetMap, Position, Run, Translated

SLOTS = 64
TOO_OLD = -1


@dataclass(frozen=True)
class Sync:
    upstream: int
    downstream: int


@dataclass
class Mm2Store:
    """MM2's 64 slots, newest first.

    Between slots i < j: up[i] <= up[j] + 2**j - 2**i (B), and up[i] >= up[j] + 2**max(i - 2, 0)
    unless both hold the same sync (C).
    """

    slots: list[Sync] = field(default_factory=list)

    def add(self, sync: Sync) -> None:
        if not self.slots or sync.upstream < self.slots[0].upstream:
            self.slots = [sync] * SLOTS
            return
        old = list(self.slots)
        replacement, at = sync, 0
        self.slots[0] = sync
        for current in range(1, SLOTS):
            previous = current - 1
            while at < current:
                candidate = old[at]
                if candidate in (self.slots[previous], replacement):
                    at += 1
                    continue
                if not _spread(self.slots[previous], candidate, previous):
                    at += 1
                    continue
                recent = _recent(self.slots[previous], candidate, previous, current)
                free = current + 1 >= SLOTS or _spread(candidate, self.slots[current + 1], current)
                if recent and free:
                    replacement = candidate
                    at += 1
                break
            if _recent(self.slots[previous], self.slots[current], previous, current):
                break
            self.slots[current] = replacement

    def distinct(self) -> list[int]:
        return list(dict.fromkeys(sync.upstream for sync in self.slots))

    def translate(self, committed: int) -> int | None:
        for sync in self.slots:
            if sync.upstream <= committed:
                return sync.downstream + (committed != sync.upstream)
        return TOO_OLD if self.slots else None


def _recent(newer: Sync, older: Sync, i: int, j: int) -> bool:
    return newer.upstream <= older.upstream + (1 << j) - (1 << i)


def _spread(newer: Sync, older: Sync, i: int) -> bool:
    return newer == older or newer.upstream >= older.upstream + (1 << max(i - 2, 0))


def test_the_port_keeps_the_syncs_mm2_keeps() -> None:
    store = Mm2Store()
    for offset in range(0, 1001, 10):
        store.add(Sync(offset, offset))
    assert store.distinct() == [1000, 990, 960, 900, 840, 720, 480, 0]

    for offset in range(1010, 10_001, 10):
        store.add(Sync(offset, offset))
    assert store.distinct() == [10000, 9990, 9960, 9900, 9840, 9600, 9120, 8640, 7680, 3840, 0]

    store.add(Sync(1500, 11_000))
    assert [store.translate(u) for u in (1499, 1500, 2000)] == [-1, 11_000, 11_001]


@pytest.mark.parametrize(
    ("sync", "expected"),
    [
        (Sync(100, 200), {150: 201}),
        (Sync(150, 251), {150: 251, 5: -1}),
        (Sync(200, 10), {200: 10}),
        (Sync(20, 20), {20: 20}),
    ],
)
def test_the_port_translates_as_mm2_does(sync: Sync, expected: dict[int, int]) -> None:
    store = Mm2Store()
    store.add(sync)

    assert {offset: store.translate(offset) for offset in expected} == expected


def test_a_long_backlog_is_exact_where_mm2_reads_tens_of_thousands_again() -> None:
    store = Mm2Store()
    for offset in range(0, 1_000_001, 100):
        store.add(Sync(offset, offset))
    offsets = OffsetMap.of([Run(0, 0, 1_000_001)])

    again = {c: c - (store.translate(c) or 0) for c in (999_950, 990_000, 750_000, 250_000)}

    assert again == {999_950: 49, 990_000: 4_399, 750_000: 135_599, 250_000: 249_999}
    assert all(offsets.forward(committed) == Translated(committed) for committed in again)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40)), min_size=1, max_size=30),
    st.integers(1, 50),
    st.data(),
)
def test_the_exact_map_is_never_behind_mm2_and_never_past_the_truth(
    steps: list[tuple[int, int]], lag_max: int, data: st.DataObject
) -> None:
    """Syncs as OffsetSyncWriter emits them: first record, after a gap, and every lag_max."""
    store, pairs, source, last_synced = Mm2Store(), [], 0, -lag_max - 1
    for hole, count in steps:
        source += hole
        for i in range(count):
            target = len(pairs)
            pairs.append((source, target))
            if (i == 0 and hole) or target - last_synced > lag_max:
                store.add(Sync(source, target))
                last_synced = target
            source += 1
    offsets = OffsetMap.of((Run(s, t, 1) for s, t in pairs), Position(source, len(pairs), source))
    committed = data.draw(st.integers(0, source))

    found = offsets.forward(committed)

    truth = next((t for s, t in pairs if s >= committed), len(pairs))
    assert found == Translated(truth)
    assert (store.translate(committed) or 0) <= truth
