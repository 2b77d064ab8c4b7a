"""Urgency of flows: the order of the overview and its headline. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from srm.domain.text.amount import amount
from srm.engine.status.status import IN_TROUBLE
from srm.service.views.documents import FlowSummary, State
from srm.service.views.series import Measured
from srm.service.views.snapshots import FlowLook

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
"""States that need attention."""
BEHIND_S: Final = 10.0
"""A flow counts as behind if its lag equals this many seconds of its own traffic."""
_CAUGHT_UP: Final = 0.1
"""A flow fell behind when its lag last was at most this fraction of the current lag."""


@dataclass(frozen=True, slots=True)
class Behind:
    """A lagging flow: start of the lag (``is_longer``: or earlier), lag in seconds."""

    since_ms: int
    seconds: float
    is_longer: bool = False


@dataclass(frozen=True, slots=True)
class Headline:
    """The first line of the overview; ``state`` is that of the worst flow."""

    state: State
    text: str


def as_known(flow: FlowSummary) -> FlowSummary:
    """Remove the forecast, which is about "now", from a flow whose latest look failed."""
    return replace(flow, forecast=None) if flow.error else flow


def by_trouble(flows: Iterable[FlowSummary]) -> list[FlowSummary]:
    """Sort flows by state, the worst first, then by lag."""
    return sorted(flows, key=rank)


def rank(flow: FlowSummary) -> tuple[int, int, str]:
    """Return the sort key of :func:`by_trouble`."""
    return _RANK[flow.state], -flow.lag, flow.flow


def headline(flows: Sequence[FlowSummary], late: Collection[str] = ()) -> Headline:
    """Summarize the state of all flows; ``late`` names those that are behind."""
    if not flows:
        return Headline("IDLE", "No flow is configured")
    worst = by_trouble(flows)[0]
    needing = [flow for flow in flows if flow.state in TROUBLES]
    if needing:
        unseen = (
            "is unknown: latest look failed"
            if worst.looked_ms or worst.error
            else "is not known yet"
        )
        word = unseen if worst.state == "UNKNOWN" else f"is {worst.state.lower()}"
        return Headline(worst.state, _count_text(needing, flows, word, "need attention"))
    behind_now = [flow for flow in flows if flow.flow in late]
    if behind_now:
        return Headline("DEGRADED", _count_text(behind_now, flows, "is behind", "are behind"))
    running = sum(flow.state == "RUNNING" for flow in flows)
    if running == len(flows):
        every = {1: "The flow is", 2: "Both flows are"}.get(running, f"All {running} flows are")
        return Headline("RUNNING", f"{every} running")
    if not running:
        return Headline(worst.state, f"{amount(len(flows), 'flow')}, none is running")
    others = len(flows) - running
    return Headline("RUNNING", f"{running} running, {others} paused, idle or off")


def _count_text(
    some: Sequence[FlowSummary], flows: Sequence[FlowSummary], one: str, more: str
) -> str:
    if len(some) == 1:
        return f"{arrow(some[0].flow)} {one}"
    return f"{len(some)} of {amount(len(flows), 'flow')} {more}"


def arrow(flow: str) -> str:
    """Write a flow with a real arrow."""
    return flow.replace("->", " \N{RIGHTWARDS ARROW} ")


def since_ms(look: FlowLook) -> int | None:
    """Return since when a flow is in trouble or paused; None if it is not, or if unknown.

    For an unreachable target this is the time of the last successful query.
    """
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
    if status.source_error and view.status.heard_ms:
        return view.status.heard_ms
    times = [
        one.since_ms
        for partitions in view.partitions.values()
        for one in partitions
        if one.since_ms and one.state in IN_TROUBLE
    ]
    return min(times, default=None)


def behind(lag: int, windows: Sequence[Measured]) -> Behind | None:
    """Detect from metrics windows whether a flow or topic is behind, and since when.

    ``lag``: records still to copy now. ``windows``: by time, without overlaps and idle periods.

    None if the lag is worth less than :data:`BEHIND_S` of its traffic, or if the newest window
    has hardly any of it. Slots report positions once a second, so that some lag is normal.
    """
    seconds = sum((w.end_ms - w.start_ms) / 1000 for w in windows)
    records = sum(w.records for w in windows)
    if not lag or not records or not seconds:
        return None
    newest = windows[-1]
    # A burst counts with its current traffic, a stopped copy with its earlier traffic.
    rate = max(records / seconds, newest.records * 1000 / (newest.end_ms - newest.start_ms))
    worth = lag / rate
    if worth < BEHIND_S or newest.replication_records_lag.sum <= _CAUGHT_UP * lag:
        return None
    later = newest
    for window in reversed(windows[:-1]):
        is_idle_between = later.start_ms > window.end_ms
        if is_idle_between or window.replication_records_lag.sum <= _CAUGHT_UP * lag:
            return Behind(later.start_ms, worth)
        later = window
    return Behind(later.start_ms, worth, is_longer=True)
