"""Supervision of the replicator: driver and slots of a flow, liveness, the next step, its end.

Its input is the flow's state topic, ``__srm-replication.<SOURCE>`` on the target, so any
host can supervise. :func:`look` reads the topics, the other functions decide on its result.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from srm.config.model import FlowConfig
from srm.domain.flow_state.liveness_thresholds import LOOK_S, LOST_S, SILENT_S, STARTUP_S, is_silent
from srm.domain.flow_state.replication_records import (
    CARRYING,
    COMMITS,
    DRIVER_KEY,
    REQUEST_KEY,
    Action,
    DriverHeartbeat,
    DriverRequest,
    Pause,
    SlotReport,
    read_pause,
)
from srm.domain.flow_state.replication_state import decode_state
from srm.domain.names.internal_topics import CONSUMER_OFFSETS
from srm.domain.names.topics import Flow
from srm.domain.text.amount import Finding, Reason, ago, amount, excerpt, grant, problem
from srm.domain.text.documents import decode_or_none, values_of
from srm.engine.flows.target_topics import StateTopic
from srm.engine.ports import FlowContext
from srm.errors import SrmError

StateTopics = Mapping[Flow, StateTopic]
Verdict = Literal["starting", "running", "ended", "lost"]
NextStep = Literal["look", "start", "supervise", "stay-stopped"]


@dataclass(frozen=True, slots=True)
class FlowSigns:
    """Driver of a flow and progress of its slots; ``remaining`` source offsets include markers."""

    flow: str
    driver: DriverHeartbeat | None
    request: DriverRequest | None
    slots: int
    partitions: int
    remaining: int
    stopped: tuple[Reason, ...]

    @property
    def beat(self) -> tuple[str, int, bool]:
        driver = self.driver
        return (driver.driver, driver.time_ms, driver.ended) if driver else ("", 0, False)

    @property
    def has_ended(self) -> bool:
        return self.driver is not None and self.driver.ended

    @property
    def is_end_requested(self) -> bool:
        """True when the pending request applies to the last driver."""
        started_after = self.driver.started_after if self.driver else ""
        return self.request is not None and self.request.request != started_after

    @property
    def stopped_by(self) -> DriverRequest | None:
        """The stop request that no driver was started after, or None."""
        request = self.request
        return request if request and request.action == "stop" and self.is_end_requested else None

    def summary(self) -> dict[str, Any]:
        return {
            "flow": self.flow,
            "application_id": self.driver.application_id if self.driver else "",
            "driver": f"{self.driver.host}/{self.driver.pid}" if self.driver else "",
            "heartbeat_ms": self.driver.time_ms if self.driver else 0,
            "slots": self.slots,
            "partitions": self.partitions,
            "remaining": self.remaining,
            "stopped": len(self.stopped),
            "reasons": list(excerpt([reason.text for reason in self.stopped])),
        }

    def line(self) -> str:
        return (
            f"{self.flow}: {amount(self.slots, 'slot')}, {amount(self.partitions, 'partition')}, "
            f"{amount(self.remaining, 'offset')} to copy"
        )


Signs = Mapping[Flow, FlowSigns | SrmError]
"""Result of one look, with an error for each flow whose state topic cannot be read."""


def read_signs(flow: Flow, records: Mapping[bytes, bytes]) -> FlowSigns:
    """Interpret the current records of a flow's state topic; damaged ones are skipped."""
    driver = read_driver(records)
    # Older reports belong to slots of an earlier application.
    oldest = driver.time_ms - SILENT_S * 1000 if driver else 0
    state = decode_state(records)
    reports = [report for report in state.reports if report.time_ms >= oldest]
    positions = [entry.position for report in reports for entry in report.positions]
    return FlowSigns(
        flow=str(flow),
        driver=driver,
        request=read_request(records),
        slots=len(reports),
        partitions=len(positions),
        remaining=sum(max(0, p.source_end - p.source_next) for p in positions),
        stopped=tuple(
            Reason(status.why, status.action).within(f"{status.topic}-{status.partition}")
            for status in state.statuses
            if status.state == "stopped"
        ),
    )


def read_driver(records: Mapping[bytes, bytes]) -> DriverHeartbeat | None:
    """Return the last heartbeat of a driver, None if damaged; the next one replaces it."""
    return decode_or_none(records.get(DRIVER_KEY), DriverHeartbeat.decode)


def read_request(records: Mapping[bytes, bytes]) -> DriverRequest | None:
    """Return the pending request, None if damaged; drivers ignore a damaged one too."""
    return decode_or_none(records.get(REQUEST_KEY), DriverRequest.decode)


def state_topic(context: FlowContext) -> StateTopic:
    return StateTopic(context.target, context.config.flow.source)


def pause_in_force(context: FlowContext) -> Pause | None:
    return read_pause(state_topic(context).read_commands())


def paused_text(context: FlowContext) -> str:
    pause = pause_in_force(context)
    return "" if pause is None else f"{context.config.flow} is paused: {pause.reason}"


def look(topics: StateTopics) -> dict[Flow, FlowSigns | SrmError]:
    """Read the state topic of each flow once; return the error of each failed read."""
    found: dict[Flow, FlowSigns | SrmError] = {}
    for flow, topic in topics.items():
        try:
            found[flow] = read_signs(flow, topic.read())
        except SrmError as error:
            found[flow] = error
    return found


@dataclass(frozen=True, slots=True)
class _Seen:
    """One flow: latest signs, times of the first read and of the last new heartbeat, last error."""

    signs: FlowSigns | None = None
    first: float = 0.0
    changed: float | None = None
    error: SrmError | None = None

    @property
    def readable(self) -> FlowSigns | None:
        return self.signs if self.error is None else None

    def silence(self, now: float) -> float:
        """Return the seconds since the heartbeat changed, infinity if it never did."""
        return float("inf") if self.changed is None else now - self.changed


@dataclass(frozen=True, slots=True)
class Watch:
    """Liveness of drivers by changes of their heartbeats, on this host's monotonic clock (s).

    The record of a dead driver stays in the topic, so its presence proves nothing. Each heartbeat
    names all flows of its application: one is enough for them. A flow whose target does not answer
    proves nothing. ``driver`` is the id of the supervised driver, if known.
    """

    began: float
    flows: Mapping[Flow, _Seen]
    driver: str = ""

    @classmethod
    def over(cls, flows: StateTopics, now: float, driver: str = "") -> Watch:
        return cls(now, {flow: _Seen() for flow in flows}, driver)

    def after(self, found: Signs, now: float) -> Watch:
        flows = {flow: _update(seen, found[flow], now) for flow, seen in self.flows.items()}
        return replace(self, flows=flows)

    @property
    def signs(self) -> tuple[FlowSigns, ...]:
        return tuple(seen.readable for seen in self.flows.values() if seen.readable is not None)

    @property
    def errors(self) -> dict[Flow, SrmError]:
        return {flow: seen.error for flow, seen in self.flows.items() if seen.error is not None}

    def verdict(self, now: float) -> Verdict:
        """Return the state of the application that drives all flows, by the readable ones."""
        seen = self.flows.values()
        for one in seen:
            driver = one.signs.driver if one.signs else None
            ours = one.changed is not None or (driver and driver.driver == self.driver)
            if driver and driver.ended and ours:
                return "ended"
        driven = self._driven(now)
        left = [one for one in seen if one.readable and one.readable.flow not in driven]
        if any(now - self.began > STARTUP_S or one.changed is not None for one in left):
            return "lost"
        return "starting" if left or all(one.changed is None for one in seen) else "running"

    def next_step(self, now: float) -> NextStep:
        """Return the next step of a supervisor without an application; repeat after "look"."""
        if self.stopped_by is not None:
            return "stay-stopped"
        driven = self._driven(now)
        is_end_requested = any(one.is_end_requested for one in self.signs)
        if not is_end_requested and driven.issuperset(map(str, self.flows)):
            return "supervise"
        # Wait for a clean end; without it the new application fences the old one.
        patience = LOST_S if is_end_requested and driven else LOOK_S
        waits = any(
            one.readable.driver and not one.readable.has_ended and now - one.first < patience
            for one in self.flows.values()
            if one.readable
        )
        return "look" if waits or not self.signs else "start"

    @property
    def stopped_by(self) -> DriverRequest | None:
        """The request that keeps a flow stopped, or None."""
        return next((one.stopped_by for one in self.signs if one.stopped_by), None)

    def living(self, now: float) -> tuple[DriverHeartbeat, ...]:
        alive = (one.readable for one in self.flows.values() if one.silence(now) <= LOST_S)
        return tuple(s.driver for s in alive if s is not None and s.driver and not s.has_ended)

    def _driven(self, now: float) -> set[str]:
        return {flow for driver in self.living(now) for flow in driver.flows}


def _update(before: _Seen, found: FlowSigns | SrmError, now: float) -> _Seen:
    if isinstance(found, SrmError):
        return replace(before, error=found)
    first, changed = before.first, before.changed
    if before.readable is None:
        # While the topic was unreadable the driver could not write either, so the time restarts.
        first, changed = now, None if changed is None else now
    elif found.beat != before.readable.beat:
        changed = now
    return _Seen(found, first, changed)


SEE_LOG: Final = "see the log of the replicator (DAG srm_replication, or srm replicate)"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverStatus(DriverHeartbeat):
    """The latest heartbeat of a replicator application, and its age.

    ``request`` is the pending request to end it, ``obeyed`` the one that ended the driver before.
    """

    age_ms: int
    alive: bool
    request: DriverRequest | None = None
    obeyed: DriverRequest | None = None


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """One slot, by its latest report."""

    slot: str
    generation: int
    partitions: int
    age_ms: int
    alive: bool
    host: str = ""

    @property
    def place(self) -> str:
        return f"{self.slot} on {self.host}" if self.host else self.slot


def driver_status(records: Mapping[bytes, bytes], flow: Flow, now_ms: int) -> DriverStatus | None:
    """Return a flow's driver by its last heartbeat, None if there is none that can be read."""
    if (beat := read_driver(records)) is None:
        return None
    age_ms = max(0, now_ms - beat.time_ms)
    request, obeyed = read_request(records), None
    if request is not None and request.request == beat.started_after:
        request, obeyed = None, request
    if request is not None and request.action == "stop":
        beat = replace(beat, stopped_by=request.by, stopped_flow=str(flow))
    return DriverStatus(
        **values_of(beat, *DriverHeartbeat.__slots__),
        age_ms=age_ms,
        alive=not beat.ended and not is_silent(age_ms),
        request=request,
        obeyed=obeyed,
    )


def slot_statuses(reports: Sequence[SlotReport], now_ms: int) -> tuple[SlotStatus, ...]:
    """Return slots with the age of their last report, without those of a restore; pure."""
    return tuple(
        SlotStatus(
            report.slot,
            report.generation,
            len(report.positions),
            max(0, now_ms - report.time_ms),
            not is_silent(now_ms - report.time_ms),
            report.host,
        )
        for report in sorted(reports, key=lambda report: report.slot)
        if report.time_ms or report.positions
    )


def never_ran(
    flow: Flow, driver: DriverHeartbeat | None, slots: Sequence[SlotStatus]
) -> Finding | None:
    """Return the finding of a flow that neither a driver nor a slot has ever reported, or None."""
    if driver is not None or slots:
        return None
    return problem("replicator", "no replicator has ever run", f"srm replicate --flow '{flow}'")


def down_reasons(
    flow: Flow, driver: DriverStatus | None, slots: Sequence[SlotStatus]
) -> Iterator[Finding]:
    """Yield why the flow is not copied; live slots copy it, with or without a live driver."""
    if any(slot.alive for slot in slots) and not (driver and driver.ended):
        return
    if (never := never_ran(flow, driver, slots)) is not None:
        yield never
    elif driver is not None and not driver.alive:
        yield _end_reason(flow, driver)
    elif slots:
        yield problem("replicator", "the replicator has no live slot", SEE_LOG)


def late_commits(config: FlowConfig, driver: DriverHeartbeat) -> Reason | None:
    """Return why a driver carries commits over at intervals, or None."""
    duties, fails = driver.duties, any(one.startswith(CARRYING) for one in driver.troubles)
    if fails or COMMITS in duties or not {"checkpoints", "group-offsets"}.intersection(duties):
        return None
    source, every_s = config.flow.source, config.emit_checkpoints_interval.total_seconds()
    return Reason(
        f"new commits on {source} wait up to {every_s:.0f} s: srm may not read {CONSUMER_OFFSETS}",
        grant("Read", CONSUMER_OFFSETS, source),
    )


def _end_reason(flow: Flow, driver: DriverStatus) -> Finding:
    when = ago(driver.age_ms)
    if driver.stopped_by:
        text = f"{driver.stopped_by} has stopped the replicator, {when}"
        again = f"srm replicator restart --flow '{driver.stopped_flow}'"
        return problem("replicator", text, again)
    word = "ended" if driver.ended else "sent its last heartbeat"
    text = f"the replicator on {driver.host} {word} {when}"
    return problem("replicator", text, f"srm replicate --flow '{flow}'")


POLL_S: Final = 0.5

Outcome = Literal["asked", "ended", "restarted", "not-running", "unreachable"]


@dataclass(frozen=True, slots=True)
class DriverAnswer:
    """Outcome of a request; ``application`` and ``host`` name the latest driver.

    ``asked``: it is alive and has not ended yet. ``restarted``: an application has started after
    the request. ``not-running``: no recent heartbeat. ``unreachable``: the target does not answer,
    and no readable driver names the flow.
    """

    flow: Flow
    action: Action
    outcome: Outcome
    application: str = ""
    host: str = ""

    @property
    def done(self) -> bool:
        finished = {"restarted"} if self.action == "restart" else {"ended", "not-running"}
        return self.outcome in {*finished, "restarted"}


def request_end(topics: StateTopics, action: Action, by: str, now_ms: int) -> DriverRequest:
    """Request the applications of flows to end, one record each; one suffices if others fail."""
    request = DriverRequest(uuid.uuid4().hex, action, by, now_ms)
    # In parallel: a target that does not answer must not delay requests to other applications.
    with ThreadPoolExecutor(len(topics) or 1, thread_name_prefix="srm-requests") as pool:
        record = {REQUEST_KEY: request.value()}
        writes = [pool.submit(topic.write, record) for topic in topics.values()]
    failures = [failure for one in writes if (failure := one.exception()) is not None]
    if failures:
        raise failures[0]
    return request


def request_action(
    topics: StateTopics,
    action: Action,
    by: str,
    now_ms: int,
    wait_s: float,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> tuple[DriverAnswer, ...]:
    """Request the applications that drive the flows to end; wait ``wait_s`` for the outcome.

    Flows without any driver so far, or whose target does not answer, get no request. Repeat it
    safely.
    """
    found, began = look(topics), clock()
    signs = {flow: one for flow, one in found.items() if isinstance(one, FlowSigns)}
    for error in (one for one in found.values() if isinstance(one, SrmError) and not signs):
        raise error
    known = {flow: topics[flow] for flow, one in signs.items() if one.driver or one.request}
    readable = {flow: topics[flow] for flow in signs}
    watch = Watch.over(readable, began).after(found, began)
    request = request_end(known, action, by, now_ms)
    while True:
        watch = watch.after(look(readable), clock())
        answers = _answers(topics, watch, request, clock())
        if all(answer.done for answer in answers) or clock() - began > wait_s:
            return answers
        pause(POLL_S)


def _answers(
    flows: Iterable[Flow], watch: Watch, request: DriverRequest, now: float
) -> tuple[DriverAnswer, ...]:
    known = {
        flow: answer(flow, seen.signs, request, now - (seen.changed or watch.began))
        for flow, seen in watch.flows.items()
    }
    # The flows of an application end together, so a readable flow answers for an unreadable one.
    named = {
        name: known[flow]
        for flow, seen in watch.flows.items()
        for name in (seen.signs.driver.flows if seen.signs and seen.signs.driver else ())
    }
    unreachable = DriverAnswer(Flow("", ""), request.action, "unreachable")
    return tuple(
        known.get(flow) or replace(named.get(str(flow), unreachable), flow=flow) for flow in flows
    )


def answer(
    flow: Flow, signs: FlowSigns | None, request: DriverRequest, silent_s: float
) -> DriverAnswer:
    """Return the outcome of a request; ``silent_s`` is the time without a new heartbeat."""
    driver = signs.driver if signs else None
    if driver is None:
        return DriverAnswer(flow, request.action, "not-running")
    outcome: Outcome = "asked"
    if driver.started_after == request.request:
        outcome = "restarted"
    elif driver.ended:
        outcome = "ended"
    elif silent_s > SILENT_S:
        outcome = "not-running"
    return DriverAnswer(flow, request.action, outcome, driver.application_id, driver.host)


def operator(host: str = "") -> str:
    """Return ``user@host``; in a container the user may have no name: then the user id."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{host or socket.gethostname()}"
