"""No position is reported before the map blocks it rests on are acknowledged."""

from __future__ import annotations

from dataclasses import replace

from tests.flows import flow_config

from srm.domain import internal_topics
from srm.domain.map_records import BlockKey
from srm.domain.offset_map import Run
from srm.domain.partition_notes import PartitionNotes
from srm.domain.replication_records import AssignedPartition
from srm.errors import AuthorizationError, SrmError, UnavailableError
from srm.replication.ports import ProducerId
from srm.replication.slot.partition import PartitionCopy, RunStart
from srm.replication.slot.reporting import Reporter
from srm.replication.slot.resume import Start

ASSIGNED = AssignedPartition("T", 0, "A" * 21 + "g", "P.T", "B" * 21 + "g")
MAP = internal_topics.offset_map("P")
STATE = internal_topics.replication("P")


class Log:
    """A state log whose acknowledgements can fail."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.keys: list[bytes] = []
        self.fails = False

    def write(self, topic: str, key: bytes, value: bytes | None, partition: int = 0) -> None:
        del partition
        self.keys.append(key)
        self.written.append(topic if value is not None else f"tombstone in {topic}")

    def flush(self, timeout_s: float) -> None:
        self.written.append("flush")
        if self.fails:
            raise UnavailableError(f"not within {timeout_s} s")

    def failure(self) -> SrmError | None:
        return AuthorizationError("refused") if self.fails else None


def copying() -> PartitionCopy:
    copy = PartitionCopy(ASSIGNED, Start(0, 0))
    copy.map.add([Run(0, 0, 10)])
    copy.source_next = copy.target_next = 10
    return copy


def test_blocks_are_acknowledged_before_the_position_is_written() -> None:
    log = Log()
    reporter = Reporter(flow_config(), "0", log, Log(), lambda: 0)

    reporter.prepare(1, [copying()], [])()

    assert log.written[:3] == [MAP, "flush", STATE]


def test_a_block_that_was_not_acknowledged_is_written_again_before_the_next_report() -> None:
    log = Log()
    reporter = Reporter(flow_config(), "0", log, Log(), lambda: 0)
    copy = copying()
    log.fails = True
    reporter.prepare(1, [copy], [])()
    assert STATE not in log.written

    log.fails = False
    log.written.clear()
    reporter.prepare(1, [copy], [])()

    assert log.written[:3] == [MAP, "flush", STATE]


def test_a_damaged_block_is_deleted_only_when_what_it_held_is_acknowledged() -> None:
    log = Log()
    reporter = Reporter(flow_config(), "0", log, Log(), lambda: 0)
    damaged = BlockKey(ASSIGNED.topic_id, 0, 1, (7, 0))
    copy = PartitionCopy(ASSIGNED, Start(0, 0, damaged=(damaged,)))
    copy.map.begin_claim(ProducerId(7, 1))
    copy.map.add([Run(0, 1, 10)])
    log.fails = True
    reporter.prepare(1, [copy], [])()
    assert log.written == [MAP, "flush"]

    log.fails = False
    log.written.clear()
    reporter.prepare(1, [copy], [])()

    assert log.written[:4] == [MAP, "flush", f"tombstone in {MAP}", STATE]


def test_offset_syncs_go_to_the_target_once_the_source_refuses_them() -> None:
    state, syncs = Log(), Log()
    reporter = Reporter(flow_config(), "0", state, syncs, lambda: 0)
    copy = copying()
    copy.last_copied = RunStart(9, 9)
    reporter.prepare(1, [copy], [])()
    assert syncs.written == [internal_topics.offset_syncs("B")]

    syncs.fails = True
    copy.last_copied = RunStart(10, 10)
    reporter.prepare(1, [copy], [])()

    assert internal_topics.offset_syncs("P") in state.written


def test_a_loss_is_told_before_the_position_passes_it_and_until_it_is_acknowledged() -> None:
    log = Log()
    reporter = Reporter(flow_config(), "0", log, Log(), lambda: 0)
    copy = copying()
    reporter.lost(copy, 3, 7, "retention passed them")
    log.fails = True
    reporter.prepare(1, [copy], [])()
    log.fails = False
    log.keys.clear()

    reporter.prepare(1, [copy], [])()
    reporter.prepare(1, [copy], [])()

    told = [key for key in log.keys if key.startswith((b"notes:", b"slot:"))]
    assert told == [b"notes:0:T-0", b"slot:0", b"slot:0"]


def test_what_is_noted_of_a_partition_that_leaves_is_told_all_the_same() -> None:
    log = Log()
    reporter = Reporter(flow_config(), "0", log, Log(), lambda: 0)
    copy = copying()
    reporter.strange(copy, "foreign records")

    reporter.prepare(1, [], [copy])()

    assert b"notes:0:T-0" in log.keys


def test_a_slot_goes_on_with_its_predecessors_notes_unless_the_topic_is_another() -> None:
    values: dict[bytes, bytes] = {}

    class Kept(Log):
        def write(self, topic: str, key: bytes, value: bytes | None, partition: int = 0) -> None:
            super().write(topic, key, value, partition)
            values[key] = value or b""

    first = PartitionNotes("0", "T", 0, ASSIGNED.topic_id).with_loss(0, 5, "too old", 0)
    for former, lost in ((first, 6), (replace(first, topic_id="C" * 22), 1)):
        reporter = Reporter(flow_config(), "0", Kept(), Log(), lambda: 0)
        reporter.remember([former])
        reporter.lost(copying(), 7, 8, "too large")
        reporter.prepare(1, [copying()], [])()

        assert PartitionNotes.decode(values[b"notes:0:T-0"]).lost == lost
