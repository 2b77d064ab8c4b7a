"""A window of a map answers as the whole map does, or says that it does not hold the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.domain.offset_map.plain_map import PlainMap, agree

from srm.domain.groups.translation import LogRange, Losses, PartitionFacts, translate
from srm.domain.names.topics import TopicPartition, topic_id_text
from srm.domain.offset_map.map_records import Entries, IndexEntry, MapBlock
from srm.domain.offset_map.offset_map import Cuts, OffsetMap, Position, Run, Runs, Translation
from srm.errors import NotLoadedError

EMPTY = MapBlock("T", topic_id_text(b"\1" * 16), 0, topic_id_text(b"\2" * 16), (7,), Runs())
small = st.integers(0, 3)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[MapBlock], list[Run], Position]:
    """Draw the blocks of a map in order, what they say together, and the position.

    Now and then the source, the target, or both are truncated to an earlier place.
    """
    pairs: list[tuple[int, int]] = []
    blocks: list[MapBlock] = []
    source, target = draw(small), draw(small)
    for steps in draw(
        st.lists(
            st.lists(st.tuples(small, small, st.integers(1, 4)), min_size=1, max_size=5), max_size=4
        )
    ):
        runs: list[Run] = []
        if blocks and draw(st.integers(0, 3)) == 0:
            if draw(st.booleans()):
                source = draw(st.integers(0, source))
            else:
                target = draw(st.integers(0, target))
            pairs = [(s, t) for s, t in pairs if s < source and t < target]
            blocks.append(replace(EMPTY, runs=Runs.of([Run(source, target, 0)]), open_end=False))
            target += 1  # the marker of the next claim
        for source_gap, target_gap, count in steps:
            source, target = source + source_gap, target + target_gap
            runs.append(Run(source, target, count))
            pairs += [(source + n, target + n) for n in range(count)]
            source, target = source + count, target + count
        blocks.append(replace(EMPTY, runs=Runs.of(runs), open_end=False))
    plain = [Run(s, t, 1) for s, t in pairs]
    return blocks, plain, Position(source, target, source)


def window(
    blocks: list[MapBlock], loaded: set[int], position: Position, *, open_end: bool = False
) -> OffsetMap:
    entries = Entries.of([IndexEntry.of_block(block, n) for n, block in enumerate(blocks)])
    needed = loaded | set(Cuts.between(entries).cut.nonzero()[0].tolist())
    return OffsetMap.window(
        entries, {n: blocks[n].runs for n in needed}, position, open_end=open_end
    )


@given(histories())
def test_with_all_blocks_loaded_a_window_is_the_whole_map(
    history: tuple[list[MapBlock], list[Run], Position],
) -> None:
    blocks, plain, position = history

    found = window(blocks, set(range(len(blocks))), position)

    agree(found, PlainMap(plain, position), max(position.source_next, position.target_next) + 3)
    assert found.records == len(plain) == found.runs.records


@given(histories(), st.sets(st.integers(0, 5)))
def test_a_window_answers_as_the_whole_map_or_not_at_all(
    history: tuple[list[MapBlock], list[Run], Position], wanted: set[int]
) -> None:
    blocks, plain, position = history
    whole = window(blocks, set(range(len(blocks))), position)
    part = window(blocks, wanted & set(range(len(blocks))), position)

    assert (part.records, part.first_source, part.last_target_end) == (
        len(plain),
        whole.first_source,
        whole.last_target_end,
    )
    for offset in range(-1, max(position.source_next, position.target_next) + 2):
        asked: list[Callable[[OffsetMap], Translation | int]] = [
            lambda known, at=offset: known.forward(at),
            lambda known, at=offset: known.backward(at),
            lambda known, at=offset: known.records_between(3, at),
            lambda known, at=offset: known.source_records_between(3, at),
        ]
        for ask in asked:
            try:
                answer = ask(part)
            except NotLoadedError:
                continue
            assert answer == ask(whole)


def test_what_was_discarded_before_a_commit_needs_no_part_of_the_map() -> None:
    """Each return may leave such a range, and a map is loaded around commits only."""
    blocks = [
        replace(EMPTY, runs=Runs.of([Run(100 * n, 90 * n, 10), Run(100 * n + 20, 90 * n + 11, 9)]))
        for n in range(5)
    ]
    part = window(blocks, {4}, Position(429, 380, 429))
    place = TopicPartition("T", 0)
    facts = PartitionFacts(
        *(
            "reverse",
            TopicPartition("P.T", 0),
            place,
            "P",
            LogRange(0, 380, 380),
            LogRange(0, 429, 429),
        ),
        part,
        losses=Losses(discarded=((10, 20), (210, 220))),
    )

    found = translate(facts, 365)

    assert (found.state, found.offset) == ("translated", 405)


def test_what_lies_in_a_loaded_block_or_between_blocks_is_answered() -> None:
    blocks = [
        replace(EMPTY, runs=Runs.of([Run(100 * n, 90 * n, 10), Run(100 * n + 20, 90 * n + 11, 9)]))
        for n in range(5)
    ]
    position = Position(500, 450, 500)
    whole, part = window(blocks, set(range(5)), position), window(blocks, {2}, position)

    for offset in [*range(200, 300), 0, 100, 130, 199, 300, 390, 400, 429, 470]:
        assert part.forward(offset) == whole.forward(offset), offset
    for offset in [*range(181, 270), 20, 21, 90, 110, 111, 360, 380, 400]:
        assert part.backward(offset) == whole.backward(offset), offset
    assert part.records_between(185, 1000) == whole.records_between(185, 1000)
    with pytest.raises(NotLoadedError, match="source offset 305"):
        part.forward(305)
    with pytest.raises(NotLoadedError, match="target offset 275"):
        part.backward(275)
    with pytest.raises(NotLoadedError, match="not as a whole"):
        _ = part.runs


def test_an_open_end_goes_on_up_to_the_position_of_the_last_block() -> None:
    blocks = [
        replace(EMPTY, runs=Runs.of([Run(0, 0, 10)])),
        replace(EMPTY, runs=Runs.of([Run(11, 10, 5)])),
    ]
    position = Position(100, 99, 100)

    assert window(blocks, {1}, position, open_end=True).records == 10 + 89
    assert window(blocks, {1}, position).records == 15
    with pytest.raises(NotLoadedError, match="last block"):
        window(blocks, {0}, position, open_end=True)


def test_a_block_that_was_cut_has_to_be_loaded() -> None:
    blocks = [
        replace(EMPTY, runs=Runs.of([Run(0, 0, 10), Run(20, 10, 10)])),
        replace(EMPTY, runs=Runs.of([Run(25, 20, 0), Run(25, 20, 5)])),
    ]
    entries = Entries.of([IndexEntry.of_block(block, n) for n, block in enumerate(blocks)])

    assert Cuts.between(entries).cut.nonzero()[0].tolist() == [0]
    with pytest.raises(NotLoadedError, match="was cut"):
        OffsetMap.window(entries, {1: blocks[1].runs}, open_end=False)
    found = OffsetMap.window(entries, {0: blocks[0].runs}, open_end=False)
    assert found.records == 10 + 5 + 5


def test_a_block_of_a_former_version_may_hold_a_cut() -> None:
    runs = Runs.of([Run(0, 0, 100), Run(50, 100, 0), Run(50, 101, 20)])
    block = replace(EMPTY, runs=runs)

    entry = IndexEntry.of_block(block, 5)
    found = OffsetMap.window(Entries.of([entry]), {0: runs}, open_end=False)

    assert (entry.source_start, entry.source_end, entry.records) == (0, 70, 70)
    assert found.runs == (Run(0, 0, 50), Run(50, 101, 20))
