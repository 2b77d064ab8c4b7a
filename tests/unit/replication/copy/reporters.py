"""Slots that report on a fake state log, and what they have written there."""

from __future__ import annotations

from dataclasses import replace

from srm.domain.flow_state.replication_records import (
    REPORTS,
    AssignedPartition,
    Incarnation,
    PartitionPosition,
)
from srm.domain.flow_state.replication_state import decode_state
from srm.domain.names import internal_topics
from srm.domain.offset_map.map_records import map_partition
from srm.domain.offset_map.offset_map import Run
from srm.replication.mapping.starts import Start
from srm.replication.partition import PartitionCopy
from srm.replication.ports import Place, ProducerId
from srm.replication.report import Reporter
from srm_lab.testing.fake_compacted import FakeStateLog
from srm_lab.testing.flows import flow_config

ASSIGNED = AssignedPartition("T", 0, "A" * 21 + "g", "P.T", "B" * 21 + "g")
MAP = internal_topics.offset_map("P"), map_partition("T", 0)
STATE = internal_topics.replication("P"), REPORTS
SYNCS = internal_topics.offset_syncs("B"), 0
ME = Incarnation(2, "me")


def reporter_to(state: FakeStateLog, syncs: FakeStateLog | None = None) -> Reporter:
    reporter = Reporter(flow_config(), "0", state, syncs or FakeStateLog(), lambda: 0)
    reporter.begin(ME)
    return reporter


def copying(number: int = 0, assigned: AssignedPartition = ASSIGNED) -> PartitionCopy:
    copy = PartitionCopy(replace(assigned, partition=number), Start(0, 0))
    copy.map.begin_claim(ProducerId(7, 1))
    copied(copy, 0, 10)
    return copy


def copied(copy: PartitionCopy, first: int, count: int) -> None:
    """Some records are acknowledged."""
    copy.map.add([Run(first, copy.target_next, count)])
    copy.source_next, copy.target_next = first + count, copy.target_next + count


def written(log: FakeStateLog) -> list[Place]:
    return [record.place for record in log.records]


def told(log: FakeStateLog) -> dict[tuple[str, int], int]:
    """Return the source offset that each partition is told to stand at, by any record."""
    return {
        (entry.topic_id, entry.partition): entry.position.source_next
        for report in decode_state(log.table(STATE)).reports
        for entry in (*report.former, *report.positions)
    }


def positions(log: FakeStateLog) -> list[PartitionPosition]:
    """Return the positions that the slot tells."""
    return [
        entry for report in decode_state(log.table(STATE)).reports for entry in report.positions
    ]
