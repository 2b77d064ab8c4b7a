"""Ask whoever drives flows to end, and wait, for a bounded time, for what becomes of it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, Literal

from srm.domain.flow_state.liveness_thresholds import SILENT_S
from srm.domain.flow_state.replication_records import REQUEST_KEY, Action, DriverRequest
from srm.domain.names.topics import Flow
from srm.engine.flows.supervision import FlowSigns, StateTopics, Watch, look
from srm.errors import SrmError

POLL_S: Final = 0.5

Outcome = Literal["asked", "ended", "restarted", "not-running", "unreachable"]


@dataclass(frozen=True, slots=True)
class DriverAnswer:
    """What became of a request.

    ``asked``: the driver is alive and has not ended yet. ``ended``: it has, in good order.
    ``restarted``: an application has started after the request. ``not-running``: no driver has
    shown a sign of life. ``unreachable``: the target does not answer, and no driver that can be
    read names the flow. ``application`` and ``host`` are those of the latest driver.
    """

    flow: Flow
    action: Action
    outcome: Outcome
    application: str = ""
    host: str = ""

    @property
    def done(self) -> bool:
        """Whether there is nothing to wait for."""
        finished = {"restarted"} if self.action == "restart" else {"ended", "not-running"}
        return self.outcome in {*finished, "restarted"}


def request_end(topics: StateTopics, action: Action, by: str, now_ms: int) -> DriverRequest:
    """Ask the applications that drive the flows to end, in one record per flow; wait for nothing.

    Raises:
        SrmError: a target does not answer, or has no state topic of the flow. The other flows have
            been asked: one of them is enough for an application that copies several.
    """
    request = DriverRequest(uuid.uuid4().hex, action, by, now_ms)
    # All at once: a target that does not answer delays no request to another application.
    with ThreadPoolExecutor(len(topics) or 1, thread_name_prefix="srm-requests") as pool:
        record = {REQUEST_KEY: request.value()}
        asked = [pool.submit(topic.write, record) for topic in topics.values()]
    failures = [failure for one in asked if (failure := one.exception()) is not None]
    if failures:
        raise failures[0]
    return request


def ask(
    topics: StateTopics,
    action: Action,
    by: str,
    now_ms: int,
    wait_s: float,
    show: Callable[[tuple[DriverAnswer, ...]], None] = lambda _answers: None,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> tuple[DriverAnswer, ...]:
    """Ask the applications that drive the flows to end and wait for what becomes of it.

    Flows that no replicator has ever driven are left out of the request. So are those whose target
    does not answer: their application reads it of another flow. It can be repeated at any time.

    Args:
        topics: state topics of the flows.
        action: "stop", or "restart" where supervision shall start another application.
        by: who asks, for people.
        now_ms: epoch milliseconds.
        wait_s: seconds after which the answers are returned as they are.
        show: called with the answers after each look.
        clock: monotonic seconds.
        pause: waits for so many seconds.

    Raises:
        SrmError: no target answers, or one refuses the record.
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
        show(answers)
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
    # The flows of an application end together: one that cannot be read ends as the others do.
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
    """Say what became of a request; ``silent_s`` are seconds without a change of the heartbeat."""
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
