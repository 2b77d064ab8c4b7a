"""Whether all blocks of a map are there is found out in the background, and mended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Any
from unittest.mock import patch

import pytest
from tests.unit.replication.mapping.map_world import ASSIGNED, World, write_out
from tests.unit.replication.mapping.test_map_crashes import start

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.offset_map.map_records import MapBlock
from srm.domain.offset_map.offset_map import Position, Run, Translated
from srm.replication.copy import slot
from srm.replication.copy.slot import MapScrub
from srm.replication.mapping import map_writer
from srm.replication.mapping.starts import Start
from srm.replication.partition import PartitionCopy
from srm.replication.ports import ProducerId


@pytest.fixture(autouse=True)
def _small_records() -> Iterator[None]:
    with (
        patch.object(map_writer, "RUNS_PER_BLOCK", 2),
        patch.object(map_writer, "ENTRIES_PER_CHUNK", 3),
        patch.object(slot, "_CHUNK_S", 0.0),
    ):
        yield


class Checker:
    """Reads the world's map topic."""

    def __init__(self, world: World, target_start: int = 0) -> None:
        self.world = world
        self.target_start = target_start

    def log_starts(self, partitions: Collection[AssignedPartition]) -> dict[AssignedPartition, int]:
        return dict.fromkeys(partitions, self.target_start)

    def map_of(self, assigned: AssignedPartition) -> World:
        del assigned
        return self.world


def copied(world: World, runs: int) -> PartitionCopy:
    """Copy so many runs of 5 records, each before a marker on the source."""
    copy = PartitionCopy(ASSIGNED, Start(0, 0))
    copy.map.begin_claim(ProducerId(7, 1))
    for number in range(runs):
        copy.map.add([Run(6 * number, 1 + 5 * number, 5)])
        world.pairs += [(6 * number + n, 1 + 5 * number + n) for n in range(5)]
        report(world, copy, number + 1)
    return copy


def report(world: World, copy: PartitionCopy, runs: int) -> None:
    copy.map.index.forget_below(copy.map.source_log_start, copy.map.target_log_start)
    write_out(world, copy.map, Position(6 * runs, 1 + 5 * runs, 6 * runs))


def scrub(world: World, copy: PartitionCopy, target_start: int = 0) -> list[PartitionCopy]:
    """Look at the copy's map once; return what had to begin again."""
    again: list[PartitionCopy] = []

    async def run(ask: Callable[[], Any]) -> Any:
        return ask()

    async def begin(lost: PartitionCopy) -> None:
        again.append(lost)

    work: Callable[..., Awaitable[None]] = MapScrub(
        list, Checker(world, target_start), run, begin
    ).look
    asyncio.run(work([copy]))  # type: ignore[arg-type]
    return again


def lose(world: World, number: int) -> MapBlock:
    """Lose the number-th block of the map."""
    block = world.blocks(world.tree())[number]
    key = block.key()
    world.records = {p: row for p, row in world.records.items() if row[0] != key}
    return block


def test_a_whole_map_is_left_alone() -> None:
    world = World()
    copy = copied(world, 40)

    assert scrub(world, copy) == []


@pytest.mark.parametrize("number", [0, 1, 7, 17, 18])
def test_a_block_that_is_lost_has_its_partition_begin_before_it(number: int) -> None:
    world = World()
    copy = copied(world, 40)
    block = lose(world, number)

    assert scrub(world, copy) == [copy]

    begun = start(world, thorough=True)
    if number:
        assert (begun.source_next, begun.target_next) == (
            6 * 2 * number - 1,
            1 + 5 * 2 * number,
        )
    else:
        assert not begun.has_position
    assert block.block_key not in begun.garbage


def test_a_block_that_cannot_be_read_is_found_out_too() -> None:
    world = World()
    copy = copied(world, 40)
    key = world.blocks(world.tree())[5].key()
    place = max(place for place, row in world.records.items() if row[0] == key)
    world.records[place] = world.records[place][0], b"damaged"

    assert scrub(world, copy) == [copy]
    assert start(world, thorough=True).source_next == 6 * 2 * 5 - 1


def test_blocks_below_the_starts_of_both_logs_are_deleted_with_their_entries() -> None:
    world = World()
    copy = copied(world, 80)
    blocks = len(world.live_blocks())
    copy.map.source_log_start = 6 * 30
    for _ in range(12):
        assert scrub(world, copy, target_start=5 * 60) == []
        for _ in range(4):
            report(world, copy, 80)

    world.compact()
    kept = world.read()
    left = world.live_blocks()
    assert len(left) < blocks - 10
    assert min(block.runs[0].source_start for block in left) <= 6 * 30
    assert kept.records == sum(block.runs.records for block in left)
    assert kept.forward(6 * 30) == Translated(1 + 5 * 30)
    assert scrub(world, copy, target_start=5 * 60) == []


def test_nothing_is_deleted_that_one_of_the_logs_still_holds() -> None:
    world = World()
    copy = copied(world, 80)
    blocks = len(world.live_blocks())
    copy.map.source_log_start = 6 * 70
    for _ in range(5):
        scrub(world, copy, target_start=0)
        report(world, copy, 80)

    assert len(world.live_blocks()) == blocks
