"""Whatever record a process is killed at, the map that the newest report reaches is right."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.replication.mapping.map_world import (
    ASSIGNED,
    KilledError,
    World,
    runs_of,
    write_out,
)

from srm.domain.flow_state.replication_records import PartitionPosition
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.offset_map import Position, Run
from srm.errors import IntegrityError
from srm.replication.mapping import map_writer
from srm.replication.mapping.map_writer import MapWriter
from srm.replication.mapping.starts import Start, known_maps, start_of
from srm.replication.ports import ProducerId

small = st.integers(0, 2)
Step = tuple[str, int, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["copy"] * 5 + ["report"] * 3 + ["claim", "cut source", "cut target"]),
        small,
        small,
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=30,
)
quiet_steps = steps.map(lambda found: [step for step in found if not step[0].startswith("cut")])
lives = st.lists(st.tuples(quiet_steps, st.integers(0, 25), st.booleans()), min_size=1, max_size=4)


@pytest.fixture(autouse=True)
def _small_records() -> object:
    """Blocks of three runs and chunks of three entries, so that a short history has them all."""
    with (
        patch.object(map_writer, "RUNS_PER_BLOCK", 3),
        patch.object(map_writer, "ENTRIES_PER_CHUNK", 3),
    ):
        yield


def start(world: World, *, thorough: bool = False) -> Start:
    """Find out where to start, as a slot does."""
    end = world.report[1] if world.report else None
    known = known_maps({ASSIGNED: end}, world, [ASSIGNED] if thorough else [])[ASSIGNED]
    position = world.report[0] if world.report else Position(0, 0, 0)
    told = PartitionPosition(*ASSIGNED.copy_id, position, 7, 0, map_end=end)
    return start_of(known, [told] if world.report else []) or Start(0, 0)


class Process:
    """A slot that copies one partition until it is killed."""

    def __init__(self, world: World, epoch: int) -> None:
        self.world, self.epoch = world, epoch
        known = start(world)
        known = replace(known, producer_ids=known.producer_ids | {7})
        self.writer = MapWriter(ASSIGNED, known)
        self.source, self.target = known.source_next, known.target_next
        # What was copied after that is found again by the walk.
        self.lost = runs_of([p for p in world.pairs if p[1] >= known.target_next])
        self.claimed = False

    def claim(self) -> None:
        self.epoch += 1
        self.writer.begin_claim(ProducerId(7, self.epoch))
        if self.lost:
            self.writer.add(self.lost)
            self.source, self.target = self.lost[-1].source_end, self.lost[-1].target_end
            self.lost = []
        self.target += 1
        self.claimed = True

    def step(self, step: Step) -> None:
        what, source_gap, target_gap, count = step
        if what == "report":
            write_out(self.world, self.writer, Position(self.source, self.target, self.source))
            return
        if not self.claimed or what == "claim":
            self.claim()
        if what == "copy":
            self.source, self.target = self.source + source_gap, self.target + target_gap
            self.writer.add([Run(self.source, self.target, count)])
            self.world.pairs += [(self.source + n, self.target + n) for n in range(count)]
            self.source, self.target = self.source + count, self.target + count
        elif what == "cut source":
            self._cut(max(0, self.source - count * 3), self.target)
        elif what == "cut target":
            at = max(0, self.target - count * 3)
            before = [s for s, t in self.world.pairs if t < at]
            self._cut(before[-1] + 1 if before else 0, at)
            self.claim()

    def _cut(self, source: int, target: int) -> None:
        self.source, self.target = source, target
        self.writer.cut(source, target)
        self.world.pairs = [p for p in self.world.pairs if p[0] < source and p[1] < target]


def check_reader(world: World) -> None:
    """Whoever reads the map, even by places that are stale, learns nothing wrong of it.

    A stale place leads to the newest version of the record, a lost index to all blocks.
    """
    assert world.report is not None
    next_target = world.report[0].target_next
    maps = world.load()
    assert not maps.errors
    assert not maps.gaps
    found = maps.get(TopicPartition(ASSIGNED.topic, ASSIGNED.partition))
    known = {(r.source_start + n, r.target_start + n) for r in found.runs for n in range(r.count)}
    assert known <= set(world.pairs)
    assert {p for p in world.pairs if p[1] < next_target} <= known


def check(world: World) -> None:
    """The map has exactly what was copied up to the reported position."""
    assert world.report is not None
    position = world.report[0]
    found = world.read().runs
    assert runs_of(
        [(r.source_start + n, r.target_start + n) for r in found for n in range(r.count)]
    ) == runs_of([p for p in world.pairs if p[1] < position.target_next])


@given(steps)
@example(  # a second cut in one block, of which nothing is left
    [
        *[("copy", 0, 0, 1), ("copy", 0, 1, 1), ("copy", 0, 1, 1), ("copy", 0, 1, 1)],
        *[("cut source", 0, 0, 1), ("copy", 1, 0, 1), ("copy", 0, 0, 2), ("cut source", 0, 0, 1)],
    ]
)
@example(  # two chunks that begin at one offset
    [
        *[("cut target", 0, 0, 1), ("copy", 0, 0, 1), ("copy", 0, 1, 1), ("copy", 0, 1, 1)],
        *[("cut target", 0, 0, 2), ("copy", 0, 0, 1), ("copy", 0, 1, 1), ("copy", 0, 1, 1)],
    ]
)
@settings(max_examples=200, deadline=None)
def test_after_each_report_its_map_has_exactly_what_was_copied(history: list[Step]) -> None:
    world = World()
    process = Process(world, 0)
    for step in [*history, ("report", 0, 0, 1)]:
        process.step(step)
        if step[0] == "report":
            world.compact()
            check(world)


@given(lives)
@example(  # killed between a block's new version and the report, cleaned, then killed at once
    [
        (
            [("copy", 0, 0, 1), ("report", 0, 0, 1), ("copy", 0, 1, 1), ("report", 0, 0, 1)],
            3,
            True,
        ),
        ([("copy", 0, 0, 1)], 0, False),
    ]
)
@settings(max_examples=300, deadline=None)
def test_whatever_record_a_process_is_killed_at_its_successor_knows_all_that_was_reported(
    history: list[tuple[list[Step], int, bool]],
) -> None:
    """Nor does a reader that follows the last report learn anything wrong, or nothing."""
    world, epoch = World(), 0
    for life, killed_after, cleaned in history:
        process = Process(world, epoch)
        world.lives = world.appended + killed_after
        with suppress(KilledError):
            for step in life:
                process.step(step)
        epoch = process.epoch
        world.lives = 10**9
        if cleaned:
            world.compact()
        if world.report is not None:
            check_reader(world)
            with suppress(IntegrityError):  # until the next report, once it is cleaned
                check(world)
    process = Process(world, epoch)
    for step in (("claim", 0, 0, 1), ("copy", 0, 0, 2), ("report", 0, 0, 1), ("report", 0, 0, 1)):
        process.step(step)
    world.compact()
    check(world)
    assert len(world.pairs) == world.read().records
