"""Blocks of the offset map topic survive their encoding; damage is named."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.map_records import (
    FORMAT,
    MAP_PARTITIONS,
    MapBlock,
    decode_block,
    map_partition,
    missing_before,
    topic_id_bytes,
    topic_id_text,
)
from srm.domain.offset_map import Run
from srm.errors import IntegrityError

int64 = st.integers(-(2**63), 2**63 - 1)
topic_ids = st.binary(min_size=16, max_size=16).map(topic_id_text)
blocks = st.builds(
    MapBlock,
    topic=st.text(st.characters(exclude_categories=("Cs",)), max_size=249),
    topic_id=topic_ids,
    partition=st.integers(0, 2**31 - 1),
    target_topic_id=topic_ids,
    producer_ids=st.lists(int64, max_size=4).map(tuple),
    runs=st.lists(st.builds(Run, int64, int64, int64), min_size=1, max_size=20).map(tuple),
    source_epoch=st.integers(-(2**31), 2**31 - 1),
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


def test_blocks_of_former_formats_are_read() -> None:
    """The first one knows of no other block, the second of no leader epoch."""
    first = b"\x01" + ONE.value()[1:-29]
    following = after(ONE, ONE)
    second = b"\x02" + following.value()[1:-4]

    assert decode_block(ONE.key(), first) == ONE
    assert decode_block(ONE.key(), second) == following


@given(st.integers(1, 8), st.integers(0, 7))
def test_a_chain_tells_of_each_block_that_is_missing_in_it(count: int, lost: int) -> None:
    log = [replace(ONE, runs=(Run(10 * n, 11 * n, 5),)) for n in range(count)]
    log = [after(block, log[n - 1] if n else None) for n, block in enumerate(log)]
    left = [block for n, block in enumerate(log) if n != lost]

    missing = missing_before(log[-1], left)

    assert missing == (log[lost].block_key if lost < count - 1 else None)


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
