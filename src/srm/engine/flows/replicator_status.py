"""Driver and slots of a flow, and whether they are alive, by their heartbeats and reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from srm.domain.flow_state.liveness_thresholds import is_silent
from srm.domain.flow_state.replication_records import (
    DRIVER_KEY,
    DriverHeartbeat,
    DriverRequest,
    SlotReport,
)
from srm.domain.names.topics import Flow
from srm.domain.text.amount import ago
from srm.domain.text.reason import Reason
from srm.engine.flows.supervision import read_request
from srm.errors import IntegrityError

SEE_LOG: Final = "see the log of the replicator (DAG srm_replication, or srm replicate)"


@dataclass(frozen=True, slots=True)
class DriverStatus:
    """The replicator application, by its latest heartbeat.

    ``request`` is the pending request to end it, newer than its start, or None. ``obeyed`` is the
    one that ended the application before it, or None. ``stopped_by`` is the user who stopped it, by
    a request in the state topic of ``stopped_flow``, which may be another of its flows.
    ``started_ms`` is its start in epoch milliseconds, 0 if unknown.
    """

    driver: str
    application_id: str
    host: str
    pid: int
    age_ms: int
    alive: bool
    ended: bool = False
    request: DriverRequest | None = None
    obeyed: DriverRequest | None = None
    stopped_by: str = ""
    stopped_flow: str = ""
    started_ms: int = 0


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """One slot, by its latest report."""

    slot: str
    generation: int
    partitions: int
    age_ms: int
    alive: bool


def driver_status(
    records: Mapping[bytes, bytes], flow: Flow, now_ms: int
) -> tuple[DriverStatus | None, dict[str, str]]:
    """Return the driver by the commands in a flow's state topic, and errors of damaged ones; pure.

    None if no replicator ever drove the flow.
    """
    value = records.get(DRIVER_KEY)
    if value is None:
        return None, {}
    try:
        beat = DriverHeartbeat.decode(value)
    except IntegrityError as error:
        return None, {"driver": str(error)}
    age_ms = max(0, now_ms - beat.time_ms)
    request, obeyed = read_request(records), None
    if request is not None and request.request == beat.started_after:
        request, obeyed = None, request
    alive = not beat.ended and not is_silent(age_ms)
    stopped = beat.stopped_by, beat.stopped_flow
    if request is not None and request.action == "stop":
        stopped = request.by, str(flow)
    return (
        DriverStatus(
            *(beat.driver, beat.application_id, beat.host, beat.pid, age_ms, alive),
            ended=beat.ended,
            request=request,
            obeyed=obeyed,
            stopped_by=stopped[0],
            stopped_flow=stopped[1],
            started_ms=beat.started_ms,
        ),
        {},
    )


def slot_statuses(reports: Sequence[SlotReport], now_ms: int) -> tuple[SlotStatus, ...]:
    """Return the slots with the age of their last reports; pure.

    A report without a time only holds positions, as a restore writes them; it is not a slot.
    """
    return tuple(
        SlotStatus(
            report.slot,
            report.generation,
            len(report.positions),
            max(0, now_ms - report.time_ms),
            not is_silent(now_ms - report.time_ms),
        )
        for report in sorted(reports, key=lambda report: report.slot)
        if report.time_ms or report.positions
    )


def down_reasons(
    flow: Flow, driver: DriverStatus | None, slots: Sequence[SlotStatus]
) -> Iterator[Reason]:
    """Yield why the flow is not copied; live slots copy it, with or without a live driver."""
    if any(slot.alive for slot in slots) and not (driver and driver.ended):
        return
    if driver is None:
        yield Reason("no replicator has ever run", f"srm replicate --flow '{flow}'")
    elif not driver.alive:
        yield _end_reason(flow, driver)
    elif slots:
        yield Reason("the replicator has no live slot", SEE_LOG)


def _end_reason(flow: Flow, driver: DriverStatus) -> Reason:
    when = ago(driver.age_ms)
    if driver.stopped_by:
        return Reason(
            f"{driver.stopped_by} has stopped the replicator, {when}",
            f"srm replicator restart --flow '{driver.stopped_flow}'",
        )
    word = "ended" if driver.ended else "sent its last heartbeat"
    return Reason(
        f"the replicator on {driver.host} {word} {when}", f"srm replicate --flow '{flow}'"
    )
