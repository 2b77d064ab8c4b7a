"""What a slot says each second survives its encoding, and is small."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from srm.domain.flow_state.replication_records import Incarnation, PartitionPosition
from srm.domain.flow_state.slot_records import (
    GROUP_SIZE,
    PositionGroup,
    SlotHeartbeat,
    decode_slot_record,
    next_incarnation,
)
from srm.domain.names.topics import topic_id_text
from srm.domain.offset_map.map_records import MapEnd
from srm.domain.offset_map.offset_map import Position
from srm.domain.offset_map.runs import MOST_EPOCHS, Lineage
from srm.errors import IntegrityError

BROKERS_LIMIT = 1 << 20

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
offset = st.integers(-(2**60), 2**60)  # differences of them fit into a folded number
topic_ids = st.binary(min_size=16, max_size=16).map(topic_id_text)
lineages = st.lists(st.tuples(int32, offset), max_size=MOST_EPOCHS).map(
    lambda starts: Lineage(tuple(starts))
)
positions = st.builds(
    PartitionPosition,
    topic_id=topic_ids,
    partition=int32,
    target_topic_id=topic_ids,
    position=st.builds(Position, offset, offset, offset),
    producer_id=offset,
    producer_epoch=int16,
    source_lineage=lineages,
    target_lineage=lineages,
    map_end=st.none() | st.builds(MapEnd, offset, st.tuples(offset, int16), offset, offset),
)
groups = st.lists(positions, max_size=8).map(tuple)
slots = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
incarnations = st.builds(
    Incarnation, st.integers(0, 2**40), st.text("0123456789abcdef-", min_size=1, max_size=8)
)


@given(slots, incarnations, st.integers(0, 10**6).map(str) | st.just("left-7"), groups)
def test_groups_of_positions_survive_a_round_trip(
    slot: str, incarnation: Incarnation, name: str, entries: tuple[PartitionPosition, ...]
) -> None:
    group = PositionGroup(slot, incarnation, name, entries)

    assert decode_slot_record(group.key(), group.value()) == group


@given(slots, incarnations, int64, int64, int32, st.tuples(int64, int64), st.text(max_size=60))
def test_heartbeats_of_slots_survive_a_round_trip(
    slot: str,
    incarnation: Incarnation,
    generation: int,
    time_ms: int,
    partitions: int,
    source: tuple[int, int],
    host: str,
) -> None:
    beat = SlotHeartbeat(slot, incarnation, generation, time_ms, partitions, *source, host=host)

    assert decode_slot_record(beat.key(), beat.value()) == beat


def test_a_heartbeat_tells_which_logs_go_on_behind_an_open_transaction() -> None:
    held = ((topic_id_text(b"a" * 16), 3, 1 << 40), (topic_id_text(b"b" * 16), 0, 7))
    beat = SlotHeartbeat("0", Incarnation(1, "aa"), 3, 4, 5, 6, 7, held, "vm")

    assert decode_slot_record(beat.key(), beat.value()) == beat


@given(st.binary(max_size=3) | st.binary(max_size=90).map(lambda rest: b"\x06\x01" + rest))
def test_a_damaged_record_of_a_slot_is_an_integrity_error(value: bytes) -> None:
    try:
        decode_slot_record(b"slot:0:1-ab:0", value)
    except IntegrityError:
        return


@given(groups.filter(len), st.data())
def test_a_group_that_is_cut_short_is_an_integrity_error(
    entries: tuple[PartitionPosition, ...], data: st.DataObject
) -> None:
    group = PositionGroup("0", Incarnation(1, "a"), "0", entries)
    value = group.value()
    cut = value[: data.draw(st.integers(0, len(value) - 1))]

    try:
        found = decode_slot_record(group.key(), cut)
    except IntegrityError:
        return

    raise AssertionError(f"{found} was read from {len(cut)} of {len(value)} bytes")


def test_no_group_meets_the_limit_of_a_broker_even_uncompressed() -> None:
    numbers = random.Random(1)
    large = 2**60
    worst = tuple(
        PartitionPosition(
            topic_id_text(numbers.randbytes(16)),
            2**30,
            topic_id_text(numbers.randbytes(16)),
            Position(large, 0, 0),
            large,
            2**15 - 1,
            Lineage(((2**30, 0), (0, large)) * (MOST_EPOCHS // 2)),
            Lineage(((2**30, 0), (0, large)) * (MOST_EPOCHS // 2)),
            MapEnd(large, (0, 0), large, 0),
        )
        for _ in range(GROUP_SIZE)
    )

    assert len(PositionGroup("0", Incarnation(1, "a"), "0", worst).value()) < BROKERS_LIMIT / 2


def test_the_process_that_starts_last_is_the_largest() -> None:
    first = next_incarnation([], 0)
    second = next_incarnation([first], 0)
    third = next_incarnation([second, first], 0)

    assert first < second < third
    assert next_incarnation([second, first], 0).number == third.number


def test_after_a_log_was_lost_the_process_that_starts_last_is_still_the_largest() -> None:
    """What the one before had on its way arrives when the next one has read an empty log."""
    before = next_incarnation([], now_ms=1_000)

    assert next_incarnation([], now_ms=2_000) > before
    assert next_incarnation([before], now_ms=500) > before
