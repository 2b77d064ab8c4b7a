"""What a slot writes of its map is enough for a reader to know every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.offset_map.map_records import RUNS_PER_BLOCK, BlockKey, MapBlock
from srm.domain.offset_map.map_tree import MapTree
from srm.domain.offset_map.offset_map import OffsetMap, Position, Run, Runs, coalesce
from srm.domain.offset_map.runs import Lineage
from srm.replication.mapping.map_writer import MapLog, MapWriter
from srm.replication.mapping.starts import NOWHERE
from srm.replication.ports import ProducerId
from srm_lab.testing.simulation.damage import last_block

ASSIGNED = AssignedPartition("T", 0, "A" * 22, "P.T", "B" * 22)
BY_3 = replace(NOWHERE, producer_ids=frozenset({3}))


def last(run: Run, previous: BlockKey | None = None) -> MapBlock:
    ids = "T", ASSIGNED.topic_id, 0, ASSIGNED.target_topic_id
    return MapBlock(*ids, (3,), Runs.of([run]), owner=(3, 0), previous=previous)


class Topic(dict[bytes, MapBlock]):
    """The compacted map topic: the latest block of each key."""

    def take(self, blocks: list[MapBlock]) -> None:
        self.update({block.key(): block for block in blocks})

    def read(self, position: Position) -> tuple[Run, ...]:
        last = last_block(self.values())
        runs = [run for b in self.values() for run in b.runs]
        return OffsetMap.of(runs, position, open_end=last.open_end).runs


steps = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(0, 2), st.booleans()),
    min_size=1,
    max_size=60,
)


@given(steps)
def test_after_each_report_a_reader_knows_exactly_what_was_copied(
    history: list[tuple[int, int, int, bool]],
) -> None:
    log, topic, runs = MapWriter(ASSIGNED), Topic(), []
    source = target = 0
    for count, source_hole, target_hole, reclaim in history:
        if reclaim:
            log.begin_claim(ProducerId(9, len(runs)))
            target += 1
        runs.append(Run(source, target, count))
        log.add(runs[-1:])
        source, target = source + count + source_hole, target + count + target_hole
        position = Position(source, target, source)

        topic.take(log.changed_blocks(position))

        assert topic.read(position) == coalesce(runs)


def test_an_owner_that_wakes_up_late_overwrites_no_block_of_its_successor() -> None:
    """The successor found the same runs in the logs, and more, and went on."""
    late, successor, topic = MapWriter(ASSIGNED), MapWriter(ASSIGNED), Topic()
    late.begin_claim(ProducerId(9, 0))
    late.add([Run(0, 1, 5)])
    successor.begin_claim(ProducerId(9, 1))
    for run in (Run(0, 1, 7), Run(7, 9, 3)):
        successor.add([run])

    position = Position(10, 12, 10)
    topic.take(successor.changed_blocks(position))
    topic.take(late.changed_blocks(Position(5, 6, 10)))

    assert topic.read(position) == (Run(0, 1, 7), Run(7, 9, 3))


def test_a_run_that_only_reports_tell_of_has_a_key_for_each_length() -> None:
    keys = {
        MapWriter(ASSIGNED, replace(NOWHERE, found=Run(5, 6, count)))
        .changed_blocks(Position(9, 9, 9))[0]
        .key()
        for count in (1, 2)
    }

    assert len(keys) == 2


def test_a_block_that_cannot_be_read_goes_once_what_it_held_is_found_again() -> None:
    damaged = BlockKey("A" * 22, 0, 5, (9, 0))
    log = MapWriter(ASSIGNED, replace(NOWHERE, garbage=(damaged,)))
    assert log.replaced_blocks() == []

    log.begin_claim(ProducerId(9, 1))
    log.add([Run(0, 1, 30)])

    [block] = log.changed_blocks(Position(30, 31, 30))
    assert block.runs == (Run(0, 1, 30),)
    assert log.replaced_blocks() == [damaged]
    assert log.replaced_blocks() == []


def test_each_claim_writes_the_open_block_under_its_own_key() -> None:
    log = MapWriter(ASSIGNED)
    log.begin_claim(ProducerId(9, 0))
    log.add([Run(0, 1, 10)])
    [first] = log.changed_blocks(Position(10, 11, 10))

    log.begin_claim(ProducerId(9, 1))
    [second] = log.changed_blocks(Position(10, 12, 10))

    assert second.runs == first.runs
    assert (first.owner, second.owner) == ((9, 0), (9, 1))
    assert log.replaced_blocks() == [first.block_key]


def test_a_cut_shortens_the_open_block_or_begins_one_that_cuts_others() -> None:
    log = MapWriter(ASSIGNED)
    log.begin_claim(ProducerId(9, 0))
    log.add([Run(100, 1, 10), Run(120, 12, 10)])

    log.cut(125, 22)
    [short] = log.changed_blocks(Position(125, 22, 125))
    log.cut(50, 30)
    [marker] = log.changed_blocks(Position(50, 30, 50))

    assert short.runs == (Run(100, 1, 10), Run(120, 12, 5))
    assert marker.runs == (Run(50, 30, 0),)
    assert log.replaced_blocks() == [short.block_key]


def test_a_run_that_only_grows_is_written_once() -> None:
    log = MapWriter(ASSIGNED)
    log.add([Run(0, 0, 10)])
    assert len(log.changed_blocks(Position(10, 10, 10))) == 1

    log.add([Run(10, 10, 1000)])

    assert log.changed_blocks(Position(1010, 1010, 1010)) == []


def test_a_full_block_is_left_alone_and_a_new_one_begins() -> None:
    log = MapWriter(ASSIGNED, BY_3)
    for number in range(RUNS_PER_BLOCK + 1):
        log.add([Run(2 * number, number, 1)])
    end = Position(2 * RUNS_PER_BLOCK + 1, RUNS_PER_BLOCK + 1, 0)

    first, second = log.changed_blocks(end)

    assert (len(first.runs), len(second.runs)) == (RUNS_PER_BLOCK, 1)
    assert first.producer_ids == (3,)
    assert log.changed_blocks(end) == []


def test_each_block_names_the_one_before_it_across_owners() -> None:
    """The last block of the former owner is taken over: what it held is in the first of ours."""
    before = BlockKey(ASSIGNED.topic_id, 0, 0, (3, 0))
    log = MapWriter(ASSIGNED, replace(BY_3, tree=MapTree(last(Run(7, 8, 1), previous=before), 5)))
    log.begin_claim(ProducerId(3, 1))
    for number in range(10, 2 * RUNS_PER_BLOCK + 10):
        log.add([Run(2 * number, number, 1)])

    first, second, third = log.changed_blocks(Position(9, 9, 9))
    log.add([Run(9 * RUNS_PER_BLOCK, 9 * RUNS_PER_BLOCK, 1)])
    [grown] = log.changed_blocks(Position(9, 9, 9))

    assert first.runs[:2] == (Run(7, 8, 1), Run(20, 10, 1))
    assert first.previous == before
    assert second.previous == first.block_key
    assert third.previous == second.block_key == grown.previous
    assert log.replaced_blocks() == [last(Run(7, 8, 1)).block_key]


def test_an_owner_that_never_claimed_takes_nothing_from_one_that_still_copies() -> None:
    """It came and went while the former owner, who was not told, copies on."""
    owner = MapWriter(ASSIGNED)
    owner.begin_claim(ProducerId(9, 1))
    owner.add([Run(0, 1, 10)])
    [written] = owner.changed_blocks(Position(10, 11, 10))
    passing = MapWriter(ASSIGNED, replace(NOWHERE, tree=MapTree(written, 0), found=Run(10, 11, 5)))

    [own] = passing.changed_blocks(Position(15, 16, 15))

    assert (passing.has_claim, owner.has_claim) == (False, True)
    assert own.runs == (Run(0, 1, 15),)
    assert own.key() != written.key()
    assert passing.replaced_blocks() == []


def test_what_only_a_former_report_told_is_written_at_once() -> None:
    log = MapWriter(ASSIGNED, replace(BY_3, found=Run(10, 10, 990)))

    [block] = log.changed_blocks(Position(1000, 1000, 1000))

    assert block.runs == (Run(10, 10, 990),)


def test_a_block_has_the_sources_lineage_before_its_end_as_it_was_written() -> None:
    read = Lineage(((3, 0), (4, 15), (5, 20)))
    log = MapWriter(ASSIGNED)
    log.begin_claim(ProducerId(9, 0))

    log.add([Run(0, 1, 10)], read)
    [first] = log.changed_blocks(Position(10, 11, 10))
    log.add([Run(10, 11, 10)], read)
    unchanged = log.changed_blocks(Position(20, 21, 20))
    [closed] = log.changed_blocks(Position(25, 21, 25))

    assert (first.runs[-1].source_end, first.source_lineage) == (10, read.before(10))
    assert unchanged == []
    assert (closed.runs[-1].source_end, closed.source_lineage) == (20, read.before(20))


def test_records_after_a_reported_cut_are_known_though_they_continue_its_line() -> None:
    """The source was truncated, a report told of the cut alone, then the copy continued there."""
    log, topic = MapWriter(ASSIGNED), Topic()
    log.begin_claim(ProducerId(9, 0))
    for run in (Run(0, 1, 2), Run(0, 3, 0), Run(0, 3, 5)):
        log.add([run])
        topic.take(log.changed_blocks(Position(run.source_end, run.target_end, 5)))

    assert topic.read(Position(5, 8, 5)) == (Run(0, 3, 5),)


def test_nothing_is_kept_of_partitions_that_have_left_once_all_of_theirs_is_written() -> None:
    maps, log = MapLog(), FakeMapTopic()
    for number in range(50):
        assigned = replace(ASSIGNED, partition=number)
        copy_id, writer = assigned.copy_id, MapWriter(assigned)
        writer.begin_claim(ProducerId(7, 1))
        writer.add([Run(0, 0, 5)])
        maps.take(writer, Position(5, 5, 5))
        log.answers = number % 2 == 0
        maps.write(log.send)
        maps.forget_others([])
        assert (maps.end(copy_id) is not None) == log.answers  # a position may still tell of it
        log.answers = True
        maps.write(log.send)
        maps.on_report()
        maps.forget_others([copy_id])
        assert maps.end(copy_id) is not None
        maps.forget_others([])
        assert maps.end(copy_id) is None
        assert maps.size == 0


def test_nothing_is_deleted_before_the_report_that_does_not_reach_it_any_more() -> None:
    """A report was late; with the next one the map was, whose last block the report still names."""
    maps, log, writer = MapLog(), FakeMapTopic(), MapWriter(ASSIGNED)
    writer.begin_claim(ProducerId(7, 1))
    writer.add([Run(0, 1, 5)])
    maps.take(writer, Position(5, 6, 5))
    maps.write(log.send)  # the report that should follow is not acknowledged
    [former] = log.keys
    writer.begin_claim(ProducerId(7, 2))
    maps.take(writer, Position(5, 7, 5))
    log.answers = False
    maps.write(log.send)
    maps.on_report()  # of the first one

    log.answers = True
    maps.write(log.send)
    assert former not in log.deleted
    maps.on_report()
    maps.write(log.send)
    assert former in log.deleted


class FakeMapTopic:
    """Gives each record a place, unless it does not answer."""

    def __init__(self) -> None:
        self.answers = True
        self.keys: set[bytes] = set()
        self.deleted: set[bytes] = set()
        self._end = 0

    def send(
        self, records: Mapping[int, Sequence[tuple[bytes, bytes | None]]]
    ) -> dict[int, dict[bytes, int]]:
        found: dict[int, dict[bytes, int]] = {}
        for number, rows in records.items() if self.answers else ():
            found[number] = {}
            for key, value in rows:
                (self.deleted if value is None else self.keys).add(key)
                found[number][key] = self._end
                self._end += 1
        return found
