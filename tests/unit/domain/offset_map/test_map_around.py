"""Reading a map from its end towards what is wanted: the same answers as from the whole map."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.map_topics import MapTopic
from tests.unit.domain.offset_map.plain_map import PlainMap, agree
from tests.unit.domain.offset_map.test_map_window import EMPTY, histories

from srm.domain.offset_map.map_loader import ALL_RUNS, LoadedMap, Steps, Wanted, load
from srm.domain.offset_map.map_records import MapBlock, MapEnd
from srm.domain.offset_map.offset_map import (
    NotCopiedYet,
    OffsetMap,
    Position,
    Run,
    Runs,
    Translated,
)
from srm.errors import NotLoadedError

COPY = EMPTY.topic_id, EMPTY.partition, EMPTY.target_topic_id


def owned(blocks: list[MapBlock]) -> list[MapBlock]:
    """Give each block a key of its own."""
    return [replace(block, owner=(7, n)) for n, block in enumerate(blocks)]


def drive(steps: Steps, topic: MapTopic) -> tuple[LoadedMap, int]:
    """Answer from the records of a topic; return the map and how many were read."""
    read = 0
    try:
        needs = next(steps)
        while True:
            read += len(needs)
            answers = {}
            for need in needs:
                at = need.place - topic.first
                row = topic.rows[at] if 0 <= at < len(topic.rows) else (b"", None)
                answers[need] = need.answer({need.place: row})
            needs = steps.send(answers)
    except StopIteration as stop:
        return stop.value, read


def around(
    topic: MapTopic, end: MapEnd, position: Position | None, wanted: Wanted
) -> tuple[OffsetMap, int]:
    found, read = drive(load(COPY, end, position, wanted), topic)
    assert not found.gap
    return found.offset_map, read


@settings(deadline=None)
@given(histories(), st.integers(1, 3), st.sets(st.integers(-1, 60)), st.sets(st.integers(-1, 60)))
def test_a_window_answers_what_was_wanted_as_the_whole_map_does(
    history: tuple[list[MapBlock], list[Run], Position],
    per_chunk: int,
    sources: set[int],
    targets: set[int],
) -> None:
    blocks, runs, position = history
    if not blocks:
        return
    topic = MapTopic(first=10)
    end = topic.write(COPY, owned(blocks), per_chunk)

    found, _ = around(topic, end, position, Wanted.of(sources, targets))

    plain = PlainMap(runs, position)
    assert found.records == len(runs)
    for offset in sources:
        if runs:
            assert found.forward(offset) == plain.forward(offset)
        for other in sources:
            expected = plain.sources_between(offset, other)
            assert found.source_records_between(offset, other) == expected
    for offset in targets:
        if runs:
            assert found.backward(offset) == plain.backward(offset)
        for other in targets:
            assert found.records_between(offset, other) == plain.targets_between(offset, other)


@settings(deadline=None)
@given(histories(), st.integers(1, 3))
def test_all_runs_are_the_whole_map(
    history: tuple[list[MapBlock], list[Run], Position], per_chunk: int
) -> None:
    blocks, runs, position = history
    if not blocks:
        return
    topic = MapTopic()
    end = topic.write(COPY, owned(blocks), per_chunk)

    found, _ = around(topic, end, position, ALL_RUNS)

    agree(found, PlainMap(runs, position), max(position.source_next, position.target_next) + 3)
    assert found.runs.records == len(runs)


def long_map(count: int = 60) -> tuple[list[MapBlock], Position]:
    blocks = [
        replace(
            EMPTY,
            runs=Runs.of([Run(100 * n, 90 * n, 10), Run(100 * n + 20, 90 * n + 11, 9)]),
            open_end=False,
            owner=(7, n),
        )
        for n in range(count)
    ]
    return blocks, Position(100 * count, 90 * count, 100 * count)


def test_few_records_are_read_of_a_long_map() -> None:
    blocks, position = long_map(1000)
    topic = MapTopic()
    end = topic.write(COPY, blocks, per_chunk=100)

    found, read = around(topic, end, position, Wanted.of([50_025]))

    assert found.forward(50_025) == Translated(45_016)
    assert read == 5  # last block, newest chunk, root, a chunk, a block
    found, read = around(topic, end, position, Wanted())
    assert (found.records, read) == (19_000, 3)
    with pytest.raises(NotLoadedError):
        found.forward(50_025)


def test_offsets_between_blocks_need_no_block() -> None:
    blocks, position = long_map()
    topic = MapTopic()
    end = topic.write(COPY, blocks, per_chunk=8)

    found, read = around(topic, end, position, Wanted.of([0, 800, 890], [720, 0]))

    assert read == 4  # of the last of them a chunk knows
    assert found.forward(890) == Translated(810)


def test_blocks_that_are_being_deleted_are_no_part_of_the_map() -> None:
    blocks, position = long_map()
    topic = MapTopic()
    end = topic.write(COPY, blocks, per_chunk=8, deleted=12)

    found, _ = around(topic, end, position, Wanted.of([850]))

    assert found.records == 19 * (60 - 12)
    assert found.first_source == 1200


def test_a_lost_block_refuses_only_what_is_in_it() -> None:
    blocks, position = long_map()
    topic = MapTopic()
    end = topic.write(COPY, blocks, per_chunk=8)
    at = next(n for n, row in enumerate(topic.rows) if row[0] == blocks[30].key())
    topic.rows[at] = (blocks[30].key(), None)

    found, _ = drive(load(COPY, end, position, Wanted.of([2505, 3005, 4005])), topic)

    assert "from target offset 2700 on is missing" in found.gap
    assert "restart the replicator" in found.gap
    assert found.offset_map.forward(2505) == Translated(2255)
    assert found.offset_map.forward(4005) == Translated(3605)
    assert found.offset_map.source_records_between(2505, 4005) == 5 + 9 + 19 * 14 + 5
    with pytest.raises(NotLoadedError):
        found.offset_map.forward(3005)


def test_a_damaged_block_says_so() -> None:
    blocks, position = long_map()
    topic = MapTopic()
    end = topic.write(COPY, blocks, per_chunk=8)
    at = next(n for n, row in enumerate(topic.rows) if row[0] == blocks[30].key())
    topic.rows[at] = (blocks[30].key(), blocks[30].value()[:-3])

    found, _ = drive(load(COPY, end, position, Wanted.of([3005])), topic)

    assert "cannot be read" in found.gap
    assert "damaged" in found.gap


def test_without_its_last_block_a_map_ends_before_it() -> None:
    """Its position proves nothing: forward(60) was 11 instead of 70."""
    blocks, position = long_map()
    topic = MapTopic()
    end = topic.write(COPY, blocks, per_chunk=8)
    topic.rows[end.place] = (blocks[-1].key(), None)

    found, _ = drive(load(COPY, end, position, Wanted.of([2505, 5905])), topic)

    assert "the last block, from target offset 5310 on, is missing" in found.gap
    assert found.offset_map.position is None
    assert found.offset_map.forward(2505) == Translated(2255)
    assert isinstance(found.offset_map.forward(5950), NotCopiedYet)


def test_a_lost_chunk_refuses_only_what_is_in_it() -> None:
    blocks, position = long_map()
    topic = MapTopic()
    end = topic.write(COPY, blocks, per_chunk=8)
    chunks = [n for n, row in enumerate(topic.rows) if row[0][:1] == b"C"]
    topic.rows[chunks[2]] = (b"another", b"record")

    found, _ = drive(load(COPY, end, position, Wanted.of([1605, 4005])), topic)

    assert "the index of the blocks from target offset 1440 on is missing" in found.gap
    assert found.offset_map.forward(4005) == Translated(3605)
    with pytest.raises(NotLoadedError):
        found.offset_map.forward(1605)


def test_thousands_of_random_offsets_agree() -> None:
    """Larger numbers than hypothesis likes to draw."""
    random.seed(3)
    blocks, source, target = [], 0, 0
    for n in range(300):
        runs = []
        for _ in range(20):
            source, target = source + random.randint(1, 4), target + random.randint(0, 2)
            count = random.randint(1, 20)
            runs.append(Run(source, target, count))
            source, target = source + count, target + count
        blocks.append(replace(EMPTY, runs=Runs.of(runs), open_end=False, owner=(7, n)))
    position = Position(source, target, source)
    topic = MapTopic()
    end = topic.write(COPY, blocks, per_chunk=16)
    whole = OffsetMap.of([run for block in blocks for run in block.runs], position, open_end=False)
    sources = random.sample(range(source), 200)
    targets = random.sample(range(target), 200)

    found, _ = around(topic, end, position, Wanted.of(sources, targets))

    assert [found.forward(n) for n in sources] == [whole.forward(n) for n in sources]
    assert [found.backward(n) for n in targets] == [whole.backward(n) for n in targets]
