"""From state records to maps: what is believed, what is left out, what is refused."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from tests.maps import assemble
from tests.slot_reports import FIRST, records_of

from srm.domain.flow_state.replication_records import (
    AssignedPartition,
    Assignment,
    DriverHeartbeat,
    Incarnation,
    PartitionPosition,
    PartitionStatus,
    SlotReport,
)
from srm.domain.flow_state.replication_state import (
    CopiedTopic,
    ReplicationState,
    decode_state,
    positions_by_copy,
)
from srm.domain.flow_state.slot_records import PositionGroup
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_records import FORMAT, MapBlock
from srm.domain.offset_map.map_tree import Placed
from srm.domain.offset_map.offset_map import NotCopiedYet, OffsetMap, Position, Run, Translated
from srm.engine.map_reader import newest_topic_ids

SOURCE, OLD_SOURCE = "SourceAAAAAAAAAAAAAAAA", "FormerAAAAAAAAAAAAAAAA"
TARGET, OLD_TARGET = "TargetAAAAAAAAAAAAAAAA", "BeforeAAAAAAAAAAAAAAAA"
P0 = TopicPartition("Payments", 0)


def block(*runs: Run, source: str = SOURCE, target: str = TARGET, partition: int = 0) -> MapBlock:
    return MapBlock("Payments", source, partition, target, (7,), runs)


def table(*blocks: MapBlock) -> dict[bytes, bytes]:
    return {b.key(): b.value() for b in blocks}


def placed(table: dict[bytes, bytes]) -> dict[bytes, Placed]:
    return {key: Placed(place, value) for place, (key, value) in enumerate(table.items())}


def reported(
    position: Position,
    slot: str = "0",
    producer: tuple[int, int] = (7, 1),
    target: str = TARGET,
) -> SlotReport:
    entry = PartitionPosition(SOURCE, 0, target, position, *producer)
    return SlotReport(slot, 1, 1000, (entry,))


def assigned(target: str, generation: int = 1, source: str = SOURCE) -> Assignment:
    entry = AssignedPartition("Payments", 0, source, "P.Payments", target)
    return Assignment("0", generation, (entry,))


def load(blocks, reports=()):
    state = ReplicationState((), tuple(reports))
    return assemble({"Payments": SOURCE}, {TARGET}, state, placed(blocks))


def test_the_open_run_reaches_to_the_reported_position():
    maps = load(table(block(Run(100, 60, 1))), [reported(Position(140, 100, 150))])

    assert maps.maps == {P0: OffsetMap((Run(100, 60, 40),), Position(140, 100, 150))}


def test_a_partition_without_records_has_a_position_but_no_runs():
    maps = load({}, [reported(Position(4, 0, 4))])

    assert maps.get(P0).forward(2) == Translated(0)


def test_runs_of_former_topics_are_not_mixed_with_those_of_the_current_ones():
    blocks = table(
        block(Run(0, 0, 50), source=OLD_SOURCE),
        block(Run(0, 10, 50), target=OLD_TARGET),
        block(Run(0, 20, 5)),
    )

    assert load(blocks).maps == {P0: OffsetMap((Run(0, 20, 5),))}


def test_a_position_in_a_former_target_topic_is_not_believed():
    """It would call everything copied that was copied into the topic that is gone."""
    blocks = table(block(Run(0, 0, 50), target=OLD_TARGET))
    old = reported(Position(50, 50, 50), target=OLD_TARGET)

    assert not load(blocks, [old]).maps
    assert not load({}, [old]).maps


def test_a_slot_that_keeps_a_position_in_a_former_target_topic_does_not_hide_the_current_one():
    blocks = table(block(Run(0, 0, 50), target=OLD_TARGET))
    old = reported(Position(50, 50, 50), target=OLD_TARGET)
    new = reported(Position(0, 0, 50), "1")

    assert load(blocks, [old, new]).get(P0).forward(30) == NotCopiedYet(30)


@pytest.mark.parametrize("is_reported", [True, False])
def test_a_former_copy_that_remains_under_another_name_is_not_the_present_one(is_reported: bool):
    """The policy was changed: the map of the old copy leads to other offsets than the new one's."""
    blocks = table(block(Run(0, 0, 50), target=OLD_TARGET), block(Run(0, 1, 5)))
    reports = [reported(Position(50, 50, 50), target=OLD_TARGET)]
    reports += [reported(Position(5, 6, 50), "1")] if is_reported else []
    copied = (pair(OLD_TARGET, active=False), pair(TARGET))

    state = ReplicationState((), tuple(reports), copied=copied)
    maps = assemble({"Payments": SOURCE}, {TARGET, OLD_TARGET}, state, placed(blocks))

    assert list(maps.get(P0).runs) == [Run(0, 1, 5)]
    assert maps.get(P0).position == (Position(5, 6, 50) if is_reported else None)


def pair(target: str, *, active: bool = True) -> CopiedTopic:
    return CopiedTopic("Payments", SOURCE, f"copy {target}", target, "of P", "of B", active)


def test_a_foreign_record_in_the_map_topic_says_nothing(caplog):
    with caplog.at_level(logging.WARNING):
        maps = load({b"junk": b"junk"} | table(block(Run(0, 0, 5))))

    assert maps.maps == {P0: OffsetMap((Run(0, 0, 5),))}
    assert b"junk".hex() in caplog.text


def test_a_block_of_a_newer_format_makes_its_partition_unusable():
    newer = block(Run(5, 5, 5))
    value = bytes([FORMAT + 1]) + newer.value()[1:]

    maps = load(table(block(Run(0, 0, 5))) | {newer.key(): value})

    assert not maps.maps
    assert "upgrade srm" in maps.errors[P0]


def test_a_block_that_is_missing_in_the_middle_makes_its_partition_unusable():
    first = block(Run(0, 0, 5))
    second = replace(block(Run(6, 7, 5)), previous=first.block_key)
    third = replace(block(Run(12, 14, 5)), previous=second.block_key)

    assert load(table(first, second, third)).maps[P0].runs[0] == Run(0, 0, 5)
    assert "target offset 7 on is missing" in load(table(first, third)).errors[P0]
    assert "target offset 0 on is missing" in load(table(second, third)).errors[P0]


def test_what_a_late_owner_missed_does_not_count_once_its_successor_has_found_it():
    lost = block(Run(0, 0, 5))
    late = replace(block(Run(6, 7, 5)), previous=lost.block_key, owner=(7, 1))
    successor = replace(block(Run(0, 0, 5), Run(6, 7, 5)), owner=(7, 2))

    maps = load(table(late, successor))

    assert maps.maps[P0].runs == (Run(0, 0, 5), Run(6, 7, 5))


def test_a_damaged_block_of_a_former_topic_harms_nobody():
    former = block(Run(5, 5, 5), source=OLD_SOURCE)

    maps = load(table(block(Run(0, 0, 5))) | {former.key(): b"\x01"})

    assert P0 in maps.maps
    assert not maps.errors


def test_the_higher_epoch_owns_the_position_even_when_it_is_behind():
    """After an unclean leader election the log is shorter than an old owner reported."""
    zombie = reported(Position(90, 90, 90), slot="0", producer=(7, 1))
    owner = reported(Position(80, 80, 90), slot="1", producer=(7, 2))

    assert load({}, [zombie, owner]).get(P0).position == Position(80, 80, 90)
    assert load({}, [owner, zombie]).get(P0).position == Position(80, 80, 90)


def test_an_idle_owner_without_a_claim_still_gets_past_markers():
    """An idle partition is not claimed, so its newest report has no epoch."""
    dead = reported(Position(90, 80, 90), slot="0", producer=(7, 5))
    idle = reported(Position(95, 80, 95), slot="1", producer=(-1, -1))

    assert load({}, [dead, idle]).get(P0).position == Position(95, 80, 95)


def test_a_new_producer_id_is_not_hidden_by_the_high_epoch_of_an_expired_one():
    dead = reported(Position(90, 80, 90), slot="0", producer=(7, 5))
    owner = reported(Position(200, 190, 200), slot="1", producer=(12, 0))

    assert load({}, [dead, owner]).get(P0).position == Position(200, 190, 200)


def test_state_records_are_decoded_by_their_keys():
    report, status = reported(Position(1, 1, 1)), PartitionStatus("Payments", 0, "copying")
    heartbeat = DriverHeartbeat("d", "app", "host", 1, 2)
    records = {r.key(): r.value() for r in (status, assigned(TARGET))}

    state = decode_state({**records, **records_of(report), b"driver": heartbeat.value()})

    told = replace(report, incarnation=FIRST)
    assert state == ReplicationState((assigned(TARGET),), (told,), (status,))


def test_state_records_that_cannot_be_read_are_left_out(caplog):
    good = reported(Position(1, 1, 1))
    broken = {
        b"slot:8": b"",
        b"slot:0:1-aa:1": b"\x04\x01",
        b"assignment:3": b"{",
        b"assignment:4": b"{}",
        b"status:a-0": b"[]",
    }

    with caplog.at_level(logging.WARNING):
        state = decode_state({**broken, **records_of(good)})

    assert state == ReplicationState((), (replace(good, incarnation=FIRST),), ())
    assert all(str(key) in caplog.text for key in broken)


def test_of_a_slot_the_process_that_started_last_is_shown_and_all_positions_count():
    first = replace(reported(Position(2, 2, 2)), incarnation=Incarnation(1, "ff"))
    second = replace(reported(Position(3, 3, 3)), time_ms=9, incarnation=Incarnation(2, "aa"))
    moved = reported(Position(4, 4, 4)).positions
    left = PositionGroup(second.slot, Incarnation(2, "aa"), "left-0", moved)

    table = {**records_of(first), **records_of(second), left.key(): left.value()}
    [report] = decode_state(table).reports

    assert report == replace(second, former=(*first.positions, *moved))
    [told] = positions_by_copy([report]).values()
    assert [entry.position.source_next for entry in told] == [3, 2, 4]


def test_of_several_source_ids_the_assignment_knows_the_newest():
    state = ReplicationState((assigned(TARGET, 1, OLD_SOURCE), assigned(TARGET, 2, SOURCE)))
    blocks = table(block(Run(0, 900, 5), source=OLD_SOURCE))

    assert newest_topic_ids({"Payments"}, state, blocks, {TARGET}) == {"Payments": SOURCE}


def test_without_an_assignment_the_id_copied_last_is_the_newest():
    blocks = table(
        block(Run(0, 5, 5)),
        block(Run(70, 0, 5), source=OLD_SOURCE),
        block(Run(0, 900, 5), source=OLD_SOURCE, target=OLD_TARGET),
    ) | {b"junk": b""}

    ids = newest_topic_ids({"Payments", "Other"}, ReplicationState(), blocks, {TARGET})

    assert ids == {"Payments": SOURCE}


def test_ids_are_only_sought_for_the_topics_that_were_asked_for():
    blocks = table(block(Run(0, 5, 5)))

    assert newest_topic_ids({"Other"}, ReplicationState(), blocks, {TARGET}) == {}
