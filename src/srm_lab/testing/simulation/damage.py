"""Damage to what srm has written down, in the internal topics of a simulated flow."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from srm.domain.flow_state.replication_records import SLOT_PREFIX
from srm.domain.flow_state.replication_state import positions_by_copy
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_records import MapBlock, decode_block, is_index_key, map_partition
from srm.domain.offset_map.runs import Run, Runs

if TYPE_CHECKING:
    from srm_lab.testing.simulation.world import SimulatedWorld


def lose_map(world: SimulatedWorld, chosen: Callable[[bytes], bool], what: str) -> None:
    """Delete records of the map by their keys."""
    count = world.store.cluster.lose(_map_topic(world), chosen)
    world.note(what, f"{count} records")


def lose_last_block(world: SimulatedWorld, place: TopicPartition) -> None:
    """Delete the last block of one partition's map."""
    if found := blocks(world, place):
        last = last_block(found)
        lose_map(world, lambda key: key == last.key(), "last block lost")


def lose_block(world: SimulatedWorld, place: TopicPartition, rng: random.Random) -> None:
    """Delete any block of one partition's map but the last one."""
    found = blocks(world, place)
    others = [block.key() for block in found if block != last_block(found)]
    if others:
        chosen = rng.choice(sorted(others))
        lose_map(world, lambda key: key == chosen, "block lost")


def lose_index(world: SimulatedWorld) -> None:
    """Delete all records of the map topic but the blocks."""
    lose_map(world, is_index_key, "index lost")


def contradict(world: SimulatedWorld, place: TopicPartition) -> None:
    """Write a block that puts other records where the last one of the map has its own.

    Without a report of the partition nothing shows which of the two is the forged one.
    """
    if found := blocks(world, place):
        last = last_block(found)
        pid, epoch = last.owner
        runs = Runs.of(Run(r.source_start + 1, r.target_start, r.count + 1) for r in last.runs)
        wrong = replace(last, owner=(pid, epoch + 1), runs=runs)
        number = map_partition(place.topic, place.partition)
        world.store.append((_map_topic(world), number), [(wrong.key(), wrong.value())])
        copy_id = last.topic_id, last.partition, last.target_topic_id
        is_reported = copy_id in positions_by_copy(world.state().reports)
        world.note("contradicting block" if is_reported else "forged block", f"{place}")


def lose_reports(world: SimulatedWorld) -> None:
    """Delete the slots' reports."""
    topic = internal_topics.replication(world.config.flow.source)
    count = world.store.cluster.lose(topic, lambda key: key.startswith(SLOT_PREFIX))
    world.note("reports lost", f"{count} records")


def blocks(world: SimulatedWorld, place: TopicPartition) -> list[MapBlock]:
    """Return the blocks of one partition."""
    topic = world.source.topics[place.topic]
    number = map_partition(place.topic, place.partition)
    table = world.store.cluster.compacted_topic(_map_topic(world), number).read()
    found = [decode_block(key, value) for key, value in table.items() if not is_index_key(key)]
    return [b for b in found if (b.topic_id, b.partition) == (topic.id_text, place.partition)]


def _map_topic(world: SimulatedWorld) -> str:
    return internal_topics.offset_map(world.config.flow.source)


def last_block(blocks: Iterable[MapBlock]) -> MapBlock:
    """Return the block that reaches furthest on the target; of equals, that of the latest claim."""
    return max(blocks, key=lambda block: (int(block.runs.target_ends[-1]), block.owner))
