"""Positions in groups: small, and none is lost, wherever processes are killed."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from srm.domain.flow_state.replication_records import REPORTS, Incarnation, PartitionPosition
from srm.domain.flow_state.replication_state import (
    GoneTopics,
    decode_state,
    newest_position,
    positions_by_copy,
)
from srm.domain.flow_state.slot_records import (
    GROUP_SIZE,
    PositionGroup,
    SlotHeartbeat,
    decode_slot_record,
    next_incarnation,
)
from srm.domain.names.topics import topic_id_text
from srm.domain.offset_map.offset_map import Position
from srm.replication.driver.state_book import LogRecord, StateBook, decode
from srm.replication.report import PositionGroups

SOURCE, TARGET = (topic_id_text(bytes([n]) * 16) for n in (1, 2))
SLOTS, PARTITIONS = ("0", "1"), 2
ME = Incarnation(1, "me")


def entry(number: int, at: int, epoch: int = 1) -> PartitionPosition:
    """Return a position, under a claim unless the epoch is -1."""
    producer = 7 if epoch >= 0 else -1
    return PartitionPosition(SOURCE, number, TARGET, Position(at, at, at), producer, epoch)


def groups_in(records: dict[bytes, bytes | None]) -> dict[str, set[int]]:
    found = {}
    for key, value in records.items():
        if value is not None:
            group = decode_slot_record(key, value)
            assert isinstance(group, PositionGroup)
            found[group.name] = {position.partition for position in group.positions}
    return found


def test_a_group_that_has_not_changed_is_not_written_again() -> None:
    groups = PositionGroups("0", ME)
    for number in range(GROUP_SIZE + 1):
        groups.put(entry(number, 1))
    assert [len(told) for told in groups_in(groups.to_write(everything=False)).values()] == [64, 1]
    groups.written()

    groups.put(entry(GROUP_SIZE, 2))
    groups.put(entry(0, 1))

    assert groups_in(groups.to_write(everything=False)) == {"1": {GROUP_SIZE}}
    assert len(groups.to_write(everything=True)) == 2


def test_room_in_a_group_is_used_again_and_an_empty_group_is_deleted() -> None:
    groups = PositionGroups("0", ME)
    for number in range(3):
        groups.put(entry(number, 1))
    for number in range(3):
        groups.leave(entry(number, 2))
    assert groups_in(groups.last_positions()) == {"left-0": {0, 1, 2}}
    groups.forget_left()
    assert groups.to_write(everything=False) == {b"slot:0:1-me:0": None}
    groups.written()

    groups.put(entry(9, 1))

    assert groups_in(groups.to_write(everything=False)) == {"0": {9}}


def test_last_positions_that_are_written_again_have_keys_of_their_own() -> None:
    """What was written before may be deleted by now: the deletion must not hit the new ones."""
    groups = PositionGroups("0", ME)
    groups.leave(entry(0, 1))
    first = groups.last_positions()
    groups.leave(entry(1, 1))

    assert not first.keys() & groups.last_positions().keys()


def test_a_partition_that_comes_back_before_it_has_left_stays() -> None:
    groups = PositionGroups("0", ME)
    groups.put(entry(0, 1))
    groups.leave(entry(0, 2))
    groups.put(entry(0, 3))
    groups.last_positions()

    groups.forget_left()

    assert groups_in(groups.to_write(everything=True)) == {"0": {0}}


@dataclass
class Process:
    """A slot: what it copies, and what it writes."""

    slot: str
    incarnation: Incarnation
    held: dict[int, PartitionPosition] = field(default_factory=dict)
    leaving: list[PartitionPosition] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.groups = PositionGroups(self.slot, self.incarnation)


class World:
    """Slots and a driver over one log."""

    def __init__(self) -> None:
        self.log: dict[bytes, bytes] = {}
        self.owner: dict[int, str] = {}
        self.epochs = 0
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.furthest = dict.fromkeys(range(PARTITIONS), 0)
        self.processes = {slot: self._start(slot) for slot in SLOTS}

    def _start(self, slot: str) -> Process:
        seen = [r.incarnation for r in decode_state(self.log).reports if r.slot == slot]
        process = Process(slot, next_incarnation((i for i in seen if i), 0))
        beat = SlotHeartbeat(slot, process.incarnation, 1, 0, 0)
        self.log[beat.key()] = beat.value()
        return process

    def told(self, number: int) -> int:
        """Return the position that readers choose."""
        reports = decode_state(self.log).reports
        candidates = positions_by_copy(reports).get((SOURCE, number, TARGET), [])
        newest = newest_position(candidates)
        return newest.position.target_next if newest else 0

    def assign(self, number: int, slot: str) -> None:
        """Move a partition: its owner lets go, the new one begins at what is told."""
        former = self.processes.get(self.owner.get(number, ""))
        if former is not None and (left := former.held.pop(number, None)) is not None:
            former.leaving.append(left)
        self.owner[number] = slot
        self._take(self.processes[slot], number)

    def _take(self, process: Process, number: int) -> None:
        """Begin at what is told: its former owner may know, and still tell, of more."""
        process.held[number] = entry(number, self.told(number), -1)

    def copy(self, number: int) -> None:
        """Claim the partition, which finds all that was copied, and copy one record more."""
        process = self.processes.get(self.owner.get(number, ""))
        if process is not None:
            epoch = process.held[number].producer_epoch
            if epoch < 0:
                self.epochs = epoch = self.epochs + 1
            self.ends[number] += 1
            process.held[number] = entry(number, self.ends[number], epoch)

    def write(self, slot: str, records_until_killed: int | None) -> None:
        """Write a report; with a number, the process is killed after so many records."""
        process, budget = self.processes[slot], records_until_killed
        for left in process.leaving:
            process.groups.leave(left)
        process.leaving = []
        for step in (self._last, self._groups):
            for key, value in step(process).items():
                if budget == 0:
                    self.kill(slot)
                    return
                budget = None if budget is None else budget - 1
                if value is None:
                    self.log.pop(key, None)
                else:
                    self.log[key] = value
            if step == self._last:
                process.groups.forget_left()
        process.groups.written()

    def _last(self, process: Process) -> dict[bytes, bytes | None]:
        return process.groups.last_positions()

    def _groups(self, process: Process) -> dict[bytes, bytes | None]:
        for held in process.held.values():
            process.groups.put(held)
        return process.groups.to_write(everything=False)

    def kill(self, slot: str) -> None:
        """A new process begins with what is assigned to the slot."""
        self.processes[slot] = self._start(slot)
        for number, owner in self.owner.items():
            if owner == slot:
                self._take(self.processes[slot], number)

    def clean(self, slots: tuple[str, ...]) -> None:
        """A driver that has read the log deletes what it may."""
        book = StateBook(slots)
        for key, value in self.log.items():
            record = decode(LogRecord("", key, value, REPORTS))
            assert record is not None
            book.take((REPORTS, key), record)
        for _, key in book.superseded_keys(GoneTopics()):
            del self.log[key]


numbers, slots = st.integers(0, PARTITIONS - 1), st.sampled_from(SLOTS)
steps = st.one_of(
    st.tuples(st.just("assign"), numbers, slots),
    st.tuples(st.just("copy"), numbers),
    st.tuples(st.just("write"), slots, st.none() | st.integers(0, 3)),
    st.tuples(st.just("kill"), slots),
    st.tuples(st.just("clean"), st.sampled_from([SLOTS, SLOTS[:1]])),
)


A_NEW_OWNER_THAT_KNOWS_LESS = [
    ("copy", 0),
    ("write", "0", None),
    ("copy", 0),
    ("assign", 0, "1"),
    ("write", "1", None),
    ("write", "0", None),
    ("clean", SLOTS),
]


@settings(max_examples=200, deadline=None)
@given(st.lists(steps, max_size=40))
@example(A_NEW_OWNER_THAT_KNOWS_LESS)
def test_a_position_that_could_be_read_once_is_never_lost(history: list[tuple[str, ...]]) -> None:
    world = World()
    for number in range(PARTITIONS):
        world.assign(number, SLOTS[number % 2])
    for name, *details in history:
        getattr(world, name)(*details)
        for number, furthest in world.furthest.items():
            told = world.told(number)
            assert told >= furthest, f"partition {number} is told at {told} after {furthest}"
            world.furthest[number] = told


@given(st.lists(steps, max_size=60))
@settings(max_examples=50, deadline=None)
def test_what_nobody_needs_does_not_pile_up(history: list[tuple[str, ...]]) -> None:
    world = World()
    for name, *details in history:
        getattr(world, name)(*details)
    for slot in SLOTS:
        world.write(slot, None)
    for number in range(PARTITIONS):
        world.assign(number, SLOTS[0])
    for slot in SLOTS:
        world.write(slot, None)

    world.clean(SLOTS)

    assert len(world.log) <= 2 * len(SLOTS)
