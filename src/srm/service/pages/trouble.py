"""What needs somebody first, and since when: the order of the overview and its headline. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from srm.domain.amount import amount
from srm.engine.observing import IN_TROUBLE
from srm.service.documents import FlowSummary, State
from srm.service.looks import FlowLook
from srm.service.series import Measured

_RANK: Final[dict[State, int]] = {
    "STOPPED": 0,
    "DEGRADED": 1,
    "UNKNOWN": 2,
    "PAUSED": 3,
    "RUNNING": 4,
    "IDLE": 5,
    "OFF": 6,
}
TROUBLES: Final = frozenset({"STOPPED", "DEGRADED", "UNKNOWN"})
"""States that somebody has to look at."""
BEHIND_S: Final = 10.0
"""A flow is told to be behind when what is left to copy is worth so much of its own traffic."""
_CAUGHT_UP: Final = 0.1
"""It fell behind when its lag was last at most this part of what it is now."""


@dataclass(frozen=True, slots=True)
class Behind:
    """A flow that lags: for how long, and how long its own traffic would take to fill that.

    ``since_ms`` is None where no window that is kept was better.
    """

    since_ms: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Headline:
    """The first line of the overview; ``state`` is that of the worst flow."""

    state: State
    text: str


def by_trouble(flows: Iterable[FlowSummary]) -> list[FlowSummary]:
    """Sort flows: those that somebody has to look at come first, of these the ones that lag."""
    return sorted(flows, key=lambda flow: (_RANK[flow.state], -flow.lag, flow.flow))


def headline(flows: Sequence[FlowSummary]) -> Headline:
    """Say of all flows together how they are."""
    if not flows:
        return Headline("IDLE", "No flow is configured")
    worst = by_trouble(flows)[0]
    needing = [flow for flow in flows if flow.state in TROUBLES]
    if len(needing) == 1:
        return Headline(worst.state, f"{arrow(worst.flow)} {_is(worst)}")
    if needing:
        return Headline(
            worst.state, f"{len(needing)} of {amount(len(flows), 'flow')} need attention"
        )
    running = sum(flow.state == "RUNNING" for flow in flows)
    if running == len(flows):
        every = {1: "The flow is", 2: "Both flows are"}.get(running, f"All {running} flows are")
        return Headline("RUNNING", f"{every} running")
    if not running:
        return Headline(worst.state, f"{amount(len(flows), 'flow')}, none is running")
    others = len(flows) - running
    return Headline("RUNNING", f"{running} running, {others} paused, idle or off")


def _is(flow: FlowSummary) -> str:
    if flow.state != "UNKNOWN":
        return f"is {flow.state.lower()}"
    return "cannot be seen now" if flow.looked_ms else "is not known yet"


def arrow(flow: str) -> str:
    """Write a flow with a real arrow."""
    return flow.replace("->", " \N{RIGHTWARDS ARROW} ")


def since_ms(look: FlowLook) -> int | None:
    """Return since when a flow is not as it should be, None where it is, or nobody knows."""
    view = look.view
    if look.error:
        return look.looked_ms or None
    if view is None or view.health.state in {"RUNNING", "IDLE", "OFF"}:
        return None
    status = view.status
    if status.pause is not None:
        return status.pause.time_ms
    if status.driver is not None and not status.driver.alive and view.health.state == "STOPPED":
        return status.time_ms - status.driver.age_ms
    if status.source_error and view.heard_ms:
        return view.heard_ms
    times = [
        one.since_ms
        for partitions in view.partitions.values()
        for one in partitions
        if one.since_ms and one.state in IN_TROUBLE
    ]
    return min(times, default=None)


def behind(lag: int, windows: Sequence[Measured]) -> Behind | None:
    """Tell of a flow or topic whether it lags, and since when, by its metrics windows.

    Args:
        lag: records still to copy now.
        windows: what was measured, by time, without overlaps.

    Returns:
        None where what is left is worth less than :data:`BEHIND_S` of its traffic.
    """
    seconds = sum((w.end_ms - w.start_ms) / 1000 for w in windows)
    records = sum(w.records for w in windows)
    if not lag or not records or not seconds:
        return None
    worth = lag / (records / seconds)
    if worth < BEHIND_S:
        return None
    began = None
    for window in reversed(windows):
        if window.replication_records_lag.max <= _CAUGHT_UP * lag:
            began = window.end_ms
            break
    return Behind(began, worth)
