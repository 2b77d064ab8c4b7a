"""What the records of the state topic say together."""

from __future__ import annotations

from srm.domain.flow_state.replication_records import Incarnation
from srm.domain.flow_state.replication_state import decode_state
from srm.domain.flow_state.slot_records import SlotHeartbeat


def beat(number: int, heard_ms: int, growth: int) -> dict[bytes, bytes]:
    told = SlotHeartbeat("0", Incarnation(number, "aa"), 1, heard_ms, 1, heard_ms, growth)
    return {told.key(): told.value()}


def test_how_fast_a_source_grew_is_what_the_process_tells_that_heard_it_last() -> None:
    """A burst that a former process has seen is over; one that has heard nothing says nothing."""
    burst, now, silent = beat(1, 1_000, 20_450), beat(2, 90_000, 3), beat(3, 0, 0)

    [report] = decode_state(burst | now | silent).reports

    assert (report.source_heard_ms, report.source_growth) == (90_000, 3)
