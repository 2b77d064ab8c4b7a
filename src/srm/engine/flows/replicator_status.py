"""Who copies a flow, and is anybody there: its driver and its slots, by their signs of life."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class DriverStatus:
    """The replicator application, by its latest heartbeat.

    ``request`` is a standing request that it end, which it was not started after; ``obeyed`` the
    one that ended an application before it, or None. ``stopped_by`` is who has stopped it by a
    request in the state topic of the flow ``stopped_flow``, which may be another that it copied.
    ``started_ms`` is when it began, epoch milliseconds; 0: not told.
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
    """Say who drives a flow by the commands in its state topic, and what of them is damaged; pure.

    None: no replicator ever drove it.
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
    """Say how long ago each slot was heard from; pure.

    What has only left positions behind, as a restore does, never was one that copies.
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
    """Say why nobody copies; slots that are heard of do, with or without a driver."""
    if any(slot.alive for slot in slots) and not (driver and driver.ended):
        return
    if driver is None:
        yield Reason("no replicator was ever seen", f"srm replicate --flow '{flow}'")
    elif not driver.alive:
        yield _end_reason(flow, driver)
    elif slots:
        yield Reason("the replicator has no slot that is alive", "see the log of srm_replication")


def _end_reason(flow: Flow, driver: DriverStatus) -> Reason:
    when = ago(driver.age_ms)
    if driver.stopped_by:
        return Reason(
            f"{driver.stopped_by} has stopped the replicator, {when}",
            f"srm replicator restart --flow '{driver.stopped_flow}'",
        )
    word = "ended" if driver.ended else "was last heard of"
    return Reason(
        f"the replicator on {driver.host} {word} {when}", f"srm replicate --flow '{flow}'"
    )
