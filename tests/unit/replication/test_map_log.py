"""What a slot writes of its map is enough for a reader to know every run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from srm.domain.map_records import RUNS_PER_BLOCK, MapBlock, decode_block_key
from srm.domain.offset_map import OffsetMap, Position, Run, coalesce
from srm.domain.replication_records import AssignedPartition
from srm.replication.map_log import MapLog
from srm.replication.ports import ProducerId

ASSIGNED = AssignedPartition("T", 0, "A" * 22, "P.T", "B" * 22)


class Topic(dict[bytes, MapBlock]):
    """The compacted map topic: the latest block of each key."""

    def take(self, blocks: list[MapBlock]) -> None:
        self.update({block.key(): block for block in blocks})

    def read(self, position: Position) -> tuple[Run, ...]:
        last = max(self.values(), key=lambda b: b.runs[-1])
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
    log, topic, runs = MapLog(ASSIGNED, ()), Topic(), []
    source = target = 0
    for count, source_hole, target_hole, reclaim in history:
        if reclaim:
            log.begin_claim(ProducerId(9, len(runs)))
            target += 1
        runs.append(Run(source, target, count))
        log.add(runs[-1])
        source, target = source + count + source_hole, target + count + target_hole
        position = Position(source, target, source)

        topic.take(log.changed_blocks(position))

        assert topic.read(position) == coalesce(runs)


def test_an_owner_that_wakes_up_late_overwrites_no_block_of_its_successor() -> None:
    """The successor found the same runs in the logs, and more, and went on."""
    late, successor, topic = MapLog(ASSIGNED, ()), MapLog(ASSIGNED, ()), Topic()
    late.begin_claim(ProducerId(9, 0))
    late.add(Run(0, 1, 5))
    successor.begin_claim(ProducerId(9, 1))
    for run in (Run(0, 1, 7), Run(7, 9, 3)):
        successor.add(run)

    position = Position(10, 12, 10)
    topic.take(successor.changed_blocks(position))
    topic.take(late.changed_blocks(Position(5, 6, 10)))

    assert topic.read(position) == (Run(0, 1, 7), Run(7, 9, 3))


def test_a_run_that_only_reports_tell_of_has_a_key_for_each_length() -> None:
    keys = {
        MapLog(ASSIGNED, (), Run(5, 6, count)).changed_blocks(Position(9, 9, 9))[0].key()
        for count in (1, 2)
    }

    assert len(keys) == 2


def test_a_block_that_cannot_be_read_is_written_again_behind_what_makes_the_map_whole() -> None:
    damaged = MapBlock("T", "A" * 22, 0, "B" * 22, (9,), (Run(4, 5, 20),), owner=(9, 0))
    log, topic = MapLog(ASSIGNED, (), None, [decode_block_key(damaged.key())]), Topic()
    log.begin_claim(ProducerId(9, 1))
    log.add(Run(0, 1, 30))

    blocks = log.changed_blocks(Position(30, 31, 30))
    topic.take(blocks)

    assert blocks[-1].key() == damaged.key()
    assert topic.read(Position(30, 31, 30)) == (Run(0, 1, 30),)


def test_a_run_that_only_grows_is_written_once() -> None:
    log = MapLog(ASSIGNED, ())
    log.add(Run(0, 0, 10))
    assert len(log.changed_blocks(Position(10, 10, 10))) == 1

    log.add(Run(10, 10, 1000))

    assert log.changed_blocks(Position(1010, 1010, 1010)) == []


def test_a_full_block_is_left_alone_and_a_new_one_begins() -> None:
    log = MapLog(ASSIGNED, (3,))
    for number in range(RUNS_PER_BLOCK + 1):
        log.add(Run(2 * number, number, 1))
    end = Position(2 * RUNS_PER_BLOCK + 1, RUNS_PER_BLOCK + 1, 0)

    first, second = log.changed_blocks(end)

    assert (len(first.runs), len(second.runs)) == (RUNS_PER_BLOCK, 1)
    assert first.producer_ids == (3,)
    assert log.changed_blocks(end) == []


def test_what_only_a_former_report_told_is_written_at_once() -> None:
    log = MapLog(ASSIGNED, (3,), found=Run(10, 10, 990))

    [block] = log.changed_blocks(Position(1000, 1000, 1000))

    assert block.runs == (Run(10, 10, 990),)
