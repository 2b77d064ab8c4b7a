"""Blocks of the offset map topic survive their encoding; damage is named."""

from __future__ import annotations

import base64
import struct
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.names.topics import topic_id_bytes, topic_id_text
from srm.domain.offset_map.map_records import (
    FORMAT,
    MAP_PARTITIONS,
    MapBlock,
    decode_block,
    map_partition,
)
from srm.domain.offset_map.map_tree import MapTable, Placed, rebuild
from srm.domain.offset_map.offset_map import Run
from srm.domain.offset_map.runs import MOST_EPOCHS, Lineage
from srm.errors import IntegrityError

int64 = st.integers(-(2**63), 2**63 - 1)
topic_ids = st.binary(min_size=16, max_size=16).map(topic_id_text)
small = st.integers(0, 3)
counts = st.integers(0, 5) | st.integers(0, 2**40)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Run, ...]:
    """Draw runs in order, equal ones among them, now and then after a cut."""
    source, target = draw(st.integers(0, 2**60)), draw(st.integers(0, 2**60))
    runs: list[Run] = []
    for source_gap, target_gap, count, times in draw(
        st.lists(st.tuples(small, small, counts, st.integers(1, 30)), min_size=1, max_size=12)
    ):
        for _ in range(times):
            source, target = source + source_gap, target + target_gap
            runs.append(Run(source, target, count))
            source, target = source + count, target + count
        if draw(st.booleans()):
            source = draw(st.integers(0, source))
    return tuple(runs)


lineages = st.lists(
    st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**60)), max_size=MOST_EPOCHS
).map(lambda starts: Lineage(tuple(starts)))
blocks = st.builds(
    MapBlock,
    topic=st.text(st.characters(exclude_categories=("Cs",)), max_size=249),
    topic_id=topic_ids,
    partition=st.integers(0, 2**31 - 1),
    target_topic_id=topic_ids,
    producer_ids=st.lists(int64, max_size=4).map(tuple),
    runs=histories(),
    open_end=st.booleans(),
    owner=st.tuples(int64, int64),
    source_lineage=lineages,
)


def after(block: MapBlock, before: MapBlock | None) -> MapBlock:
    key = before and replace(before.block_key, topic_id=block.topic_id, partition=block.partition)
    return replace(block, previous=key)


chained = st.builds(after, blocks, st.none() | blocks)
ONE = MapBlock(
    "Payments", topic_id_text(b"\x01" * 16), 3, topic_id_text(b"\x02" * 16), (7,), (Run(1, 2, 3),)
)


@given(st.binary(min_size=16, max_size=16))
def test_topic_ids_are_printed_as_kafka_does(raw: bytes) -> None:
    text = topic_id_text(raw)

    assert text == base64.urlsafe_b64encode(raw).decode()[:22]
    assert topic_id_bytes(text) == raw


@given(chained)
def test_blocks_survive_a_round_trip(block: MapBlock) -> None:
    assert decode_block(block.key(), block.value()) == block


def test_equal_runs_cost_next_to_nothing_and_others_a_few_bytes() -> None:
    equal = replace(ONE, runs=tuple(Run(11 * n, 10 * n, 10) for n in range(512)))
    random, at, runs = Random(1), [0, 0], []
    for _ in range(512):
        runs.append(Run(at[0], at[1], random.randint(1, 20)))
        at = [runs[-1].source_end + 1, runs[-1].target_end]

    whole = len(ONE.value())
    assert len(equal.value()) < whole + 10
    assert len(replace(ONE, runs=tuple(runs)).value()) < whole + 1.1 * 512


@given(chained, st.data())
def test_a_damaged_block_is_another_block_or_an_integrity_error(
    block: MapBlock, data: st.DataObject
) -> None:
    value = bytearray(block.value())
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode_block(block.key(), bytes(value))
    except IntegrityError:
        return

    assert len(found.runs) > 0
    assert min(found.runs.sources.min(), found.runs.targets.min(), found.runs.counts.min()) >= 0


def test_a_hostile_number_of_runs_allocates_nothing() -> None:
    runs = struct.pack(">iqq", 2**31 - 1, 0, 0) + b"\xff\xff\xff\xff\x1f\x01" * 3
    value = ONE.value()
    cut = value[: -len(struct.pack(">iqq", 1, 1, 2)) - 2] + runs

    with pytest.raises(IntegrityError, match="2147483647 runs"):
        decode_block(ONE.key(), cut)


@given(st.integers(1, 8), st.integers(0, 7))
def test_a_chain_tells_of_each_block_that_is_missing_in_it(count: int, lost: int) -> None:
    log = [replace(ONE, runs=(Run(10 * n, 11 * n, 5),)) for n in range(count)]
    log = [after(block, log[n - 1] if n else None) for n, block in enumerate(log)]
    left = {b.key(): Placed(n, b.value()) for n, b in enumerate(log) if n != lost}
    copy_id = ONE.topic_id, ONE.partition, ONE.target_topic_id

    found = rebuild(MapTable.of(copy_id, left), None)

    assert found.missing == (log[lost].block_key if lost < count - 1 else None)


def test_a_growing_block_keeps_its_key_and_a_successor_gets_another() -> None:
    grown = MapBlock("Payments", ONE.topic_id, 3, ONE.target_topic_id, (7, 8), (Run(1, 2, 9),))
    successor = MapBlock("Payments", ONE.topic_id, 3, ONE.target_topic_id, (8,), (Run(9, 11, 1),))

    assert grown.key() == ONE.key() != successor.key()


@given(st.text(), st.integers(0, 2**31 - 1))
def test_every_partition_has_its_place_in_the_map_topic(topic: str, partition: int) -> None:
    assert 0 <= map_partition(topic, partition) < MAP_PARTITIONS


@given(blocks, st.data())
def test_a_cut_block_is_an_integrity_error(block: MapBlock, data: st.DataObject) -> None:
    value = block.value()
    cut = data.draw(st.integers(0, len(value) - 1))

    with pytest.raises(IntegrityError, match="damaged"):
        decode_block(block.key(), value[:cut])


@given(st.binary(max_size=40), st.binary(max_size=80))
def test_foreign_bytes_raise_nothing_but_an_integrity_error(key: bytes, value: bytes) -> None:
    try:
        block = decode_block(key, value)
    except IntegrityError:
        return

    assert decode_block(block.key(), block.value()) == block


def test_a_later_format_is_refused_with_advice() -> None:
    with pytest.raises(IntegrityError, match="upgrade srm"):
        decode_block(ONE.key(), bytes([FORMAT + 1]) + ONE.value()[1:])
