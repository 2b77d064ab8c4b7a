"""A map is cut at what the target's log still holds, by what of it is needed for that."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from tests.unit.replication.mapping.map_world import ASSIGNED, World, write_out
from tests.unit.replication.mapping.test_map_crashes import check, start

from srm.domain.offset_map.offset_map import Position, Run, Translated
from srm.replication.claim import Claim
from srm.replication.mapping import map_writer
from srm.replication.mapping.starts import Start, cut_start, translate_back
from srm.replication.partition import PartitionCopy
from srm.replication.ports import ProducerId
from srm.replication.resume.resume import Resumed


@pytest.mark.parametrize("target_end", [199, 195, 150, 101, 57, 56, 6, 2])
def test_a_map_continues_from_where_the_targets_log_was_cut(target_end: int) -> None:
    with (
        patch.object(map_writer, "RUNS_PER_BLOCK", 2),
        patch.object(map_writer, "ENTRIES_PER_CHUNK", 3),
    ):
        world = World()
        copy = PartitionCopy(ASSIGNED, Start(0, 0))
        copy.map.begin_claim(ProducerId(7, 1))
        for n in range(40):
            copy.map.add([Run(6 * n, 1 + 5 * n, 5)])
            world.pairs += [(6 * n + i, 1 + 5 * n + i) for i in range(5)]
            write_out(world, copy.map, Position(6 * n + 6, 6 + 5 * n, 6 * n + 6))
        whole, known = world.read(), start(world)

        position = Position(known.source_next, known.target_next, known.source_next)
        found = translate_back(known.tree, position, target_end, world)
        assert found == whole.backward(target_end)
        assert isinstance(found, Translated)
        begun = cut_start(known, found, target_end)
        assert (begun.source_next, begun.target_next) == (found.offset, target_end)

        world.pairs = [pair for pair in world.pairs if pair[1] < target_end]
        copy = PartitionCopy(ASSIGNED, begun)
        copy.map.begin_claim(ProducerId(7, 2))
        copy.map.add([Run(found.offset, target_end + 1, 3)])
        world.pairs += [(found.offset + i, target_end + 1 + i) for i in range(3)]
        end = Position(found.offset + 3, target_end + 4, found.offset + 3)
        for _ in range(3):
            write_out(world, copy.map, end)
        world.compact()
        check(world)


@pytest.mark.parametrize("target_end", [140, 103, 102, 60])
def test_a_cut_keeps_what_only_a_report_tells_of_the_last_run(target_end: int) -> None:
    world = World()
    copy = PartitionCopy(ASSIGNED, Start(0, 0))
    copy.map.begin_claim(ProducerId(7, 1))
    copy.map.add([Run(0, 2, 100)])
    world.pairs += [(n, 2 + n) for n in range(100)]
    write_out(world, copy.map, Position(100, 102, 100))
    copy.map.add([Run(100, 102, 50)])  # the block is not written again: the position tells of it
    world.pairs += [(n, 2 + n) for n in range(100, 150)]
    write_out(world, copy.map, Position(150, 152, 150))

    known = start(world)
    begun = cut_start(known, Translated(target_end - 2), target_end)
    world.pairs = [pair for pair in world.pairs if pair[1] < target_end]
    copy = PartitionCopy(ASSIGNED, begun)
    copy.map.begin_claim(ProducerId(7, 2))
    write_out(world, copy.map, Position(target_end - 2, target_end + 1, 150))

    check(world)


def test_a_cut_is_told_under_a_claim_of_its_own_though_nothing_is_to_be_copied() -> None:
    """An older process may have left a report of the same claim that is further."""
    cut = PartitionCopy(ASSIGNED, Start(5, 7, cut=True))
    assert cut.needs_claim
    cut.begin_claiming()
    claim = Claim(ProducerId(7, 2), 1e9)
    cut.begin_copying(claim, Resumed(5, 8))
    assert not cut.needs_claim

    cut.cut_at(3)
    cut.take_up()
    assert cut.needs_claim
