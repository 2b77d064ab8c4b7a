"""No position is reported before the map blocks it rests on are acknowledged."""

from __future__ import annotations

from tests.flows import flow_config

from srm.domain import internal_topics
from srm.domain.offset_map import Run
from srm.domain.replication_records import AssignedPartition
from srm.errors import AuthorizationError, SrmError, UnavailableError
from srm.replication.partition import PartitionCopy, RunStart
from srm.replication.reporting import Reporter
from srm.replication.resume import Start

ASSIGNED = AssignedPartition("T", 0, "A" * 21 + "g", "P.T", "B" * 21 + "g")
MAP = internal_topics.offset_map("P")
STATE = internal_topics.replication("P")


class Log:
    """A state log whose acknowledgements can fail."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.fails = False

    def write(self, topic: str, key: bytes, value: bytes, partition: int = 0) -> None:
        del key, value, partition
        self.written.append(topic)

    def flush(self, timeout_s: float) -> None:
        self.written.append("flush")
        if self.fails:
            raise UnavailableError(f"not within {timeout_s} s")

    def failure(self) -> SrmError | None:
        return AuthorizationError("refused") if self.fails else None


def copying() -> PartitionCopy:
    copy = PartitionCopy(ASSIGNED, Start(0, 0))
    copy.map.add(Run(0, 0, 10))
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
