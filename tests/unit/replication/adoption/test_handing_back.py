"""A flow goes back to MirrorMaker 2 only when nothing of srm copies it any more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from srm.domain.flow_state.replication_records import DRIVER_KEY, DriverHeartbeat
from srm.domain.flow_state.slot_records import Incarnation, SlotHeartbeat
from srm.domain.names.topics import Flow
from srm.errors import ConflictError
from srm.replication.adoption import check_stopped

FLOW, NOW_MS = Flow("P", "B"), 1_000_000
SLOT = SlotHeartbeat("0", Incarnation(1, "aa"), 1, NOW_MS - 2_000, 3)
KILLED = DriverHeartbeat("d", "app-1", "host", 1, NOW_MS - 60_000)


def records(driver: DriverHeartbeat, slot: SlotHeartbeat) -> dict[bytes, bytes]:
    return {DRIVER_KEY: driver.value(), slot.key(): slot.value()}


def test_slots_that_outlive_a_killed_driver_keep_the_flow() -> None:
    with pytest.raises(ConflictError, match="slots 0 of P->B have reported lately"):
        check_stopped(records(KILLED, SLOT), FLOW, NOW_MS)

    check_stopped(records(KILLED, replace(SLOT, time_ms=NOW_MS - 20_000)), FLOW, NOW_MS)


def test_a_driver_that_runs_keeps_the_flow_until_it_has_ended() -> None:
    running = replace(KILLED, time_ms=NOW_MS - 1_000)
    with pytest.raises(ConflictError, match="srm replicates P->B already, on host"):
        check_stopped(records(running, SLOT), FLOW, NOW_MS)

    check_stopped(records(replace(running, ended=True), SLOT), FLOW, NOW_MS)
