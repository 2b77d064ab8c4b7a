"""Request drivers of flows to end, and wait a bounded time for the outcome."""

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
    """Outcome of a request; ``application`` and ``host`` name the latest driver.

    ``asked``: the driver is alive and has not ended yet.
    ``ended``: the driver has ended cleanly.
    ``restarted``: an application has started after the request.
    ``not-running``: no driver has sent a heartbeat recently.
    ``unreachable``: the target does not answer, and no readable driver names the flow.
    """

    flow: Flow
    action: Action
    outcome: Outcome
    application: str = ""
    host: str = ""

    @property
    def done(self) -> bool:
        """True when the outcome is final."""
        finished = {"restarted"} if self.action == "restart" else {"ended", "not-running"}
        return self.outcome in {*finished, "restarted"}


def request_end(topics: StateTopics, action: Action, by: str, now_ms: int) -> DriverRequest:
    """Request the applications that drive the flows to end, one record per flow; do not wait.

    On an error the other requests were written; one suffices for an application.
    """
    request = DriverRequest(uuid.uuid4().hex, action, by, now_ms)
    # In parallel: a target that does not answer must not delay requests to other applications.
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
    """Request the applications that drive the flows to end, and wait for the outcome.

    Flows without any driver so far get no request. Neither do flows whose target does not answer;
    their application may read it from another flow. The call is safe to repeat.

    ``wait_s``: seconds after which the answers are returned as they are.
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
