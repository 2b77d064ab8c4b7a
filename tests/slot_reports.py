"""What a slot writes about itself, for tests that play its part."""

from __future__ import annotations

from srm.domain.flow_state.replication_records import Incarnation, SlotReport
from srm.domain.flow_state.slot_records import PositionGroup, SlotHeartbeat

FIRST = Incarnation(1, "aa")


def records_of(report: SlotReport) -> dict[bytes, bytes]:
    """Return the records, by key, of the partition of reports, that tell a slot's report."""
    incarnation = report.incarnation or FIRST
    beat = SlotHeartbeat(
        report.slot,
        incarnation,
        report.generation,
        report.time_ms,
        len(report.positions),
        report.source_heard_ms,
        report.source_growth,
        report.held_back,
        report.host,
    )
    group = PositionGroup(report.slot, incarnation, "0", report.positions)
    return {beat.key(): beat.value(), group.key(): group.value()}
