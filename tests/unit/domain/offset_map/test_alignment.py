"""A copy of others is aligned with its source: repeats, gaps, compaction, foreign records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.offset_map.alignment import (
    KEYED,
    OPTIONAL,
    TOMBSTONE,
    AlignedCopy,
    Alignment,
    Columns,
)
from srm.domain.offset_map.offset_map import NotCopiedYet, OffsetMap, Position, Run, Translated
from srm.domain.offset_map.runs import Runs


@dataclass(frozen=True)
class One:
    """A record: its offset, its content, its key (0: none), its kind."""

    offset: int
    content: int
    key: int = 0
    kind: int = 0


def columns(records: Sequence[One]) -> Columns:
    return Columns(
        np.array([r.offset for r in records], np.int64),
        np.array([r.content for r in records], np.int64),
        np.array([r.key for r in records], np.int64),
        np.array([r.kind | (KEYED if r.key else 0) for r in records], np.uint8),
    )


def pieces(records: Sequence[One], size: int) -> list[Sequence[One]]:
    return [records[at : at + size] for at in range(0, len(records), size)]


def align(
    source: Sequence[One], target: Sequence[One], size: int = 1000, **settings: object
) -> AlignedCopy:
    """Align as the engine does, with chunks of a size."""
    alignment = Alignment(**settings)  # type: ignore[arg-type]
    chunks = iter(pieces(source, size))
    left = columns([])
    parts = pieces(target, size) or [[]]
    for number, part in enumerate(parts):
        left = Columns.concatenate([left, columns(part)])
        while True:
            left = left.after(alignment.match(left, is_last=number == len(parts) - 1))
            if not (len(left) and alignment.wants_source):
                break
            chunk = next(chunks, None)
            if chunk is None:
                alignment.ended = True
            else:
                alignment.feed(columns(chunk))
    assert not len(left)
    return alignment.result()


def plain(contents: Iterable[int], start: int = 0) -> list[One]:
    return [One(offset, content) for offset, content in enumerate(contents, start)]


def pairs(runs: Runs) -> list[tuple[int, int]]:
    return [(r.source_start + n, r.target_start + n) for r in runs for n in range(r.count)]


def test_a_copy_in_one_stretch_is_one_run() -> None:
    found = align(plain(range(100)), plain(range(70)))

    assert found.runs == (Run(0, 0, 70),)
    assert (found.source_next, found.copied, found.repeated, found.skipped) == (70, 70, 0, ())


def test_records_copied_again_after_a_crash_count_once_at_their_last_copy() -> None:
    found = align(plain(range(100)), plain([*range(50), *range(40, 60)]))

    assert found.runs == (Run(0, 0, 40), Run(40, 50, 20))
    assert (found.source_next, found.copied, found.repeated) == (60, 60, 10)


def test_a_writer_killed_while_it_repeats_leaves_the_furthest_position() -> None:
    found = align(plain(range(100)), plain([*range(50), *range(40, 43)]))

    assert found.source_next == 50
    assert found.runs == (Run(0, 0, 50),)
    assert (found.copied, found.repeated) == (50, 3)


def test_a_repeat_that_was_cut_short_is_named_where_keys_have_a_last_record() -> None:
    source, copied = plain(range(100)), plain([*range(50), *range(40, 43)])

    assert align(source, copied, target_compacts=True).cut_short == ((43, 50),)
    assert align(source, copied, source_compacts=True).cut_short == ((43, 50),)
    assert align(source, copied).cut_short == ()
    assert align(source, plain(range(50)), target_compacts=True).cut_short == ()


def test_what_was_skipped_is_named() -> None:
    found = align(plain(range(100)), plain([*range(20), *range(30, 40)]))

    assert (found.skipped, found.skipped_records) == (((20, 30),), 10)
    assert found.source_next == 40


def test_aborted_records_need_no_copy_and_may_have_one() -> None:
    source = [One(n, n, kind=OPTIONAL if 10 <= n < 20 else 0) for n in range(30)]

    without = align(source, plain([*range(10), *range(20, 30)]))
    assert (without.skipped, without.source_next) == ((), 30)
    assert without.runs == (Run(0, 0, 10), Run(20, 10, 10))
    assert align(source, plain(range(30))).runs == (Run(0, 0, 30),)


def test_foreign_records_are_named_and_the_copy_continues_after_them() -> None:
    found = align(plain(range(30)), plain([*range(10), 900, 901, *range(10, 30)]))

    assert found.foreign == ((10, 12),)
    assert found.runs == (Run(0, 0, 10), Run(10, 12, 20))


def test_records_older_than_the_source_s_log_are_not_foreign() -> None:
    found = align(plain(range(20, 40), 20), plain(range(35)), trimmed=True)

    assert (found.older, found.foreign) == (((0, 20),), ())
    assert found.runs == (Run(20, 20, 15),)


def test_source_records_whose_copies_the_target_has_deleted_are_not_skipped() -> None:
    copies = plain([*range(40, 60), *range(70, 80), *range(75, 90)], 1000)

    found = align(plain(range(100)), copies, target_trimmed=True)

    assert (found.skipped, found.source_next, found.copied) == (((60, 70),), 90, 40)
    assert align(plain(range(100)), copies).skipped == ((0, 40), (60, 70))


def test_keys_of_deleted_copies_need_no_later_record() -> None:
    source = [One(n, n, key=1 + n) for n in range(9)]

    found = align(source, source[4:], target_trimmed=True, target_compacts=True)

    assert (found.skipped, found.compacted, found.source_next) == ((), 0, 9)


def test_a_record_that_compaction_removed_on_the_target_has_a_later_one_of_its_key() -> None:
    source = [One(n, n, key=1 + n % 3) for n in range(9)]
    kept = [One(n, n, key=1 + n % 3) for n in (4, 5, 6)]

    found = align(source, kept, target_compacts=True)
    assert (found.skipped, found.compacted, found.source_next) == ((), 4, 7)
    assert found.runs == (Run(4, 4, 3),)

    lacking = [one for one in kept if one.offset != 5]  # key 3 has no record at all
    found = align(source, lacking, target_compacts=True)
    assert (found.skipped, found.skipped_records) == (((2, 3), (5, 6)), 2)


def test_a_tombstone_that_the_target_has_removed_needs_no_later_record() -> None:
    source = [One(0, 0, 1), One(1, 1, 2, TOMBSTONE), One(2, 2, 1)]

    found = align(source, [One(2, 2, 1)], target_compacts=True)

    assert (found.skipped, found.compacted) == ((), 2)


def test_a_copy_whose_record_compaction_removed_on_the_source_is_a_hole() -> None:
    source = [One(n, n, 1 + n % 2) for n in (4, 5, 6)]
    target = [One(n, n, 1 + n % 2) for n in range(6)]

    found = align(source, target, source_compacts=True)

    assert found.runs == (Run(4, 4, 2),)
    assert (found.compacted, found.foreign) == (4, ())


def test_a_known_position_is_continued() -> None:
    found = align(plain(range(60)), plain(range(40, 50), 90), begin=40)

    assert found.runs == (Run(40, 90, 10),)
    assert (found.source_next, found.skipped) == (50, ())


def test_records_before_a_known_position_that_were_copied_again_are_repeats() -> None:
    found = align(plain(range(60)), plain(range(30, 50), 90), begin=40)

    assert (found.source_next, found.skipped) == (50, ())
    assert (40, 100) in pairs(found.runs)


def test_a_repeat_that_does_not_reach_a_known_position_leaves_the_map_as_it_is() -> None:
    found = align(plain(range(60)), plain(range(20, 30), 90), begin=40)

    assert (found.source_next, found.runs, found.late) == (40, (), ())


def test_records_first_copied_after_later_ones_are_named_and_no_map_is_proven() -> None:
    found = align(plain(range(40)), plain([*range(10), *range(20, 30), *range(10, 20)]))

    assert (found.late, found.runs) == (((10, 20),), ())


def test_a_source_longer_than_memory_is_aligned_in_a_window() -> None:
    found = align(plain(range(5000)), plain([*range(3000), *range(2900, 4000)]), 100, most=400)

    assert found.runs == (Run(0, 0, 2900), Run(2900, 3000, 1100))
    assert (found.skipped, found.foreign) == ((), ())


@st.composite
def copies(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """A source with gaps of offsets, and the indexes that a writer copied at least once."""
    length = draw(st.integers(0, 60))
    offsets, at = [], 0
    for gap in draw(st.lists(st.integers(0, 2), min_size=length, max_size=length)):
        offsets.append(at + gap)
        at += gap + 1
    copied: list[int] = []
    start = 0
    for back, count in draw(
        st.lists(st.tuples(st.integers(-3, 6), st.integers(1, 20)), max_size=6)
    ):
        start = min(max(0, start - back), length)
        copied += range(start, min(length, start + count))
        start = min(length, start + count)
    return offsets, copied


@given(copies(), st.integers(1, 30))
def test_no_reader_skips_and_the_position_is_after_the_furthest(
    case: tuple[list[int], list[int]], size: int
) -> None:
    offsets, copied = case
    source = [One(offset, 1000 + offset) for offset in offsets]
    target = [One(at, 1000 + offsets[index]) for at, index in enumerate(copied)]

    found = align(source, target, size)

    there = [offsets[index] for index in copied]
    assert found.source_next == max(there, default=-1) + 1
    assert found.copied == len(set(there))
    assert found.repeated == len(there) - len(set(there))
    passed = {offset for offset in offsets if offset < found.source_next}
    assert {o for a, b in found.skipped for o in range(a, b)} == passed - set(there)
    assert found.foreign == ()
    assert all(there[t] == s for s, t in pairs(found.runs))
    if found.late:
        assert found.runs == ()
        return
    assert found.runs.grow()
    whole = OffsetMap.of(
        found.runs, Position(found.source_next, len(target), found.source_next), open_end=False
    )
    for committed in range(found.source_next + 2):
        place = whole.forward(committed)
        if not isinstance(place, Translated):
            assert isinstance(place, NotCopiedYet) or not there
            continue
        rest = there[place.offset :]
        wanted = {o for o in there if o >= committed}
        assert wanted <= set(rest), "no reader skips a record"
    for read in range(len(target) + 1):
        back = whole.backward(read)
        if isinstance(back, Translated) and there:
            unread = set(there) - set(there[:read])
            assert all(o >= back.offset for o in unread), "nor one that returns"


@given(st.lists(st.integers(0, 2), max_size=40), st.data())
def test_equal_contents_lose_nothing(contents: list[int], data: st.DataObject) -> None:
    copied = data.draw(st.integers(0, len(contents)))
    back = data.draw(st.integers(0, copied))
    again = data.draw(st.integers(0, len(contents) - copied + back))
    source = plain(contents)
    target = plain([*contents[:copied], *contents[copied - back : copied - back + again]])

    found = align(source, target, 7)

    assert found.foreign == ()
    assert all(target[t].content == source[s].content for s, t in pairs(found.runs))
    held = [one.content for one in target]
    for content in set(contents[: found.source_next]):
        assert held.count(content) >= contents[: found.source_next].count(content) - sum(
            contents[a:b].count(content) for a, b in found.skipped
        )
