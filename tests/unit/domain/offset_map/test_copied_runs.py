"""A map of a copy at least once keeps the source's order, wherever its writer was killed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.offset_map.alignment import OffsetSet, last_copies, late_copies
from srm.domain.offset_map.offset_map import OffsetMap, Position, Translated
from srm.domain.offset_map.runs import Run, Runs


@dataclass(frozen=True)
class Copied:
    """A log of copies: target offset and source offset of each, and how they are known.

    Attributes:
        log: the copies in the target's order; the first ones are known before.
        begin: source offset up to which these go.
        known: number of them.
    """

    log: tuple[tuple[int, int], ...]
    begin: int = 0
    known: int = 0

    @property
    def facts(self) -> Runs:
        return Runs.of(Run(source, target, 1) for target, source in self.log[self.known :]).join()

    @property
    def runs(self) -> Runs:
        """The known map, and what is found after it."""
        known = Runs.of(Run(source, target, 1) for target, source in self.log[: self.known])
        return Runs.concatenate([known, last_copies(self.facts, self.begin)]).join()


@st.composite
def killed_writers(draw: st.DrawFn) -> Copied:
    """A writer that was killed again and again, and continued at or before its last record.

    Both logs have offsets without records. The target may be compacted: of a key the last stays.
    """
    gaps = st.sampled_from([1, 1, 1, 1, 2, 4])
    length = draw(st.integers(1, 40))
    offsets = list(accumulate(draw(st.lists(gaps, min_size=length, max_size=length))))
    known = draw(st.integers(0, length) | st.just(0))
    copied, end = list(range(known)), known
    stretches = st.tuples(st.integers(0, 30), st.integers(1, 20))
    for back, count in draw(st.lists(stretches, min_size=1, max_size=6)):
        start = max(0, end - back)
        end = min(length, start + count)
        copied += range(start, end)
    if not known and draw(st.booleans()):
        keys, cleaned = draw(st.integers(1, length)), draw(st.integers(0, len(copied)))
        last = {index % keys: at for at, index in enumerate(copied[:cleaned])}
        copied = [
            index for at, index in enumerate(copied) if at >= cleaned or last[index % keys] == at
        ]
    steps = draw(st.lists(gaps, min_size=len(copied), max_size=len(copied)))
    log = tuple(zip(accumulate(steps), (offsets[index] for index in copied), strict=True))
    return Copied(log, offsets[known - 1] + 1 if known else 0, known)


@given(killed_writers())
def test_a_lagging_group_reads_every_record_in_the_source_s_order(copied: Copied) -> None:
    if late_copies(copied.facts, copied.begin):
        return  # compaction removed the first copy of a record; no map is handed over
    log, runs = copied.log, copied.runs
    records = sorted({source for _, source in log})
    # srm continues after the furthest record, at the end of the target.
    next_source, end = records[-1] + 1, log[-1][0] + 1
    log += tuple((end + n, next_source + n) for n in range(3))
    records += range(next_source, next_source + 3)
    runs = Runs.concatenate([runs, Runs.of([Run(next_source, end, 3)])]).join()

    assert runs.grow()
    assert runs.records == len(records), "each record is in the map once"
    whole = OffsetMap.of(runs, Position(next_source + 3, end + 3, next_source + 3))
    for committed in range(next_source + 4):
        place = whole.forward(committed)
        assert isinstance(place, Translated) or committed > next_source + 3
        if not isinstance(place, Translated):
            continue
        read = [source for target, source in log if target >= place.offset]
        wanted = [source for source in records if source >= committed]
        assert read[:1] == wanted[:1]
        assert [s for s in dict.fromkeys(read) if s >= committed] == wanted, "once, in order"
    for target, _ in log:
        back = whole.backward(target)
        assert isinstance(back, Translated)
        unread = set(records) - {source for at, source in log if at < target}
        assert min(unread) >= back.offset, "a group that returns skips nothing"


@pytest.mark.parametrize(
    ("stretches", "runs"),
    [
        ([(0, 900), (780, 806)], [Run(0, 0, 900)]),
        ([(0, 900), (780, 806), (790, 795)], [Run(0, 0, 900)]),
        (
            [(0, 900), (780, 806), (800, 910)],
            [Run(0, 0, 780), Run(780, 900, 20), Run(800, 926, 110)],
        ),
        ([(0, 100), (94, 95), (100, 110)], [Run(0, 0, 100), Run(100, 101, 10)]),
        ([(0, 100), (50, 51), (60, 70), (51, 100)], [Run(0, 0, 51), Run(51, 111, 49)]),
    ],
)
def test_a_copy_is_in_the_map_if_all_later_records_follow_it_in_order(
    stretches: list[tuple[int, int]], runs: list[Run]
) -> None:
    starts = accumulate((end - start for start, end in stretches), initial=0)
    facts = Runs.of(
        Run(start, at, end - start) for at, (start, end) in zip(starts, stretches, strict=False)
    )

    assert tuple(last_copies(facts)) == tuple(runs)
    assert late_copies(facts) == ()


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=12))
def test_a_set_of_offsets_is_one(added: list[tuple[int, int]]) -> None:
    known, plainly = OffsetSet(), set[int]()
    for start, count in added:
        numbers = set(range(start, start + count))
        new = known.add(start, start + count)
        assert {n for a, b in new for n in range(a, b)} == numbers - plainly
        plainly |= numbers
        ranges = list(known)
        assert {n for a, b in ranges for n in range(a, b)} == plainly
        assert all(left[1] < right[0] for left, right in pairwise(ranges))
        for offset in range(40):
            assert known.next(offset) == min((n for n in plainly if n >= offset), default=None)
