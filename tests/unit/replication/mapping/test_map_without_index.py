"""Maps without an index are continued, and get one with the first report."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest
from tests.unit.replication.mapping.map_world import ASSIGNED, World, write_out
from tests.unit.replication.mapping.test_map_crashes import check, start

from srm.domain.offset_map.map_records import BlockKey, MapBlock, is_index_key
from srm.domain.offset_map.offset_map import Position, Run, Runs
from srm.replication.mapping import map_writer
from srm.replication.mapping.map_writer import MapWriter
from srm.replication.ports import ProducerId

END = Position(6 * 20, 1 + 5 * 20, 6 * 20)


@pytest.fixture(autouse=True)
def _small_chunks() -> Iterator[None]:
    with patch.object(map_writer, "ENTRIES_PER_CHUNK", 3):
        yield


def map_without_index() -> World:
    """Return a map of 20 runs in 10 blocks; its report names no place."""
    world, previous = World(), None
    for number in range(10):
        runs = [Run(6 * n, 1 + 5 * n, 5) for n in (2 * number, 2 * number + 1)]
        block = MapBlock(
            "T",
            ASSIGNED.topic_id,
            0,
            ASSIGNED.target_topic_id,
            (7,),
            Runs.of(runs),
            False,
            (7, 0),
            previous,
        )
        previous: BlockKey | None = block.block_key
        world.append([(block.key(), block.value())])
        world.pairs += [(r.source_start + n, r.target_start + n) for r in runs for n in range(5)]
    world.report = END, None
    return world


def writer(world: World) -> MapWriter:
    known = start(world)
    assert (known.source_next, known.target_next) == (END.source_next, END.target_next)
    return MapWriter(ASSIGNED, known)


def test_a_partition_without_a_claim_gets_an_index_too() -> None:
    world = map_without_index()

    write_out(world, writer(world), END)

    world.compact()
    check(world)
    assert sum(map(is_index_key, dict(world.records.values()))) == 4, "three chunks and a root"
    assert not start(world).rewrite_index


def test_a_claim_continues_a_map_without_an_index() -> None:
    world = map_without_index()
    maps = writer(world)
    maps.begin_claim(ProducerId(7, 1))
    maps.add([Run(6 * 20, 2 + 5 * 20, 5)])
    world.pairs += [(6 * 20 + n, 2 + 5 * 20 + n) for n in range(5)]

    end = Position(6 * 21, 2 + 5 * 21, 6 * 21)
    for _ in range(2):
        write_out(world, maps, end)

    world.compact()
    check(world)
