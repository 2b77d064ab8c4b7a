"""Forecast of the loss if the source of a flow died now; works before and after its death.

The forecast uses the records on the target. While the source answers, its log end offsets are
exact, and all records that the target does not have would be lost.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from heapq import nlargest

from srm.domain.flow_state.liveness_thresholds import is_silent
from srm.domain.groups.group_sync import IDLE
from srm.domain.groups.proof_records import FlowProof
from srm.domain.moves.records.forecast import Forecast
from srm.domain.moves.records.request import MoveRequest
from srm.domain.text.amount import amount, duration
from srm.engine.flows.cluster_absence import loudness
from srm.engine.flows.source_look import SourceLook
from srm.engine.groups.checkpoints import per_group
from srm.engine.moves.control.move_records import without_source
from srm.engine.moves.planning.outlook import Outlook, read_outlook
from srm.engine.ports import FlowContext
from srm.errors import SrmError

log = logging.getLogger(__name__)

_GROUPS = 50
"""Groups that one look reads on the source; looks repeat every few seconds."""


@dataclass(frozen=True)
class Standing:
    """The current forecast of a flow; ``line`` is its text for operators."""

    line: str
    forecast: Forecast
    proof: FlowProof | None = None


def with_commits(context: FlowContext, known: Outlook) -> Outlook:
    """Add the source commits of idle groups, of those with most records to read again.

    An idle group may lag far for good; records that it has not read do not count as read again.
    """
    counts = {plan.group: known.read_again(plan) for plan in known.plans}
    late = (group for group, count in counts.items() if count)
    some = nlargest(_GROUPS, late, key=counts.__getitem__)
    try:
        described = context.source.groups(some) if some else {}
        idle = [group for group in some if group in described and described[group].state in IDLE]
        commits, _ = per_group(context.source.commits_of(idle))
    except SrmError as error:
        flow = context.config.flow
        log.log(loudness(error), "%s: commits of idle groups are not known: %s", flow, error)
        return known
    return replace(known, commits=commits)


def read_known(context: FlowContext, also: Collection[str] = ()) -> Outlook:
    """Read the state of a flow from its target.

    It makes no request per group, so it stays cheap with thousands of groups.

    ``also``: more topics whose positions are read, such as heartbeats, which do not move.
    """
    flow = context.config.flow
    return read_outlook(
        without_source(context),
        MoveRequest("failover", flow.source, flow.target, mode="unplanned"),
        with_groups=False,
        also=also,
    )


def standing_of(context: FlowContext, known: Outlook, source: SourceLook | None) -> Standing:
    """Forecast the loss of a flow's source from what was read; pure but for the clock.

    ``source``: the log end offsets of the source, None where it does not answer.
    """
    now_ms = context.now_ms() if source is None else source.time_ms  # the forecast is as of then
    forecast = known.forecast(now_ms, source)
    line = _line(context.config.flow.source, forecast, known.proof, now_ms)
    return Standing(line, forecast, known.proof)


def _line(source: str, forecast: Forecast, proof: FlowProof | None, now_ms: int) -> str:
    proven = "no group proven yet" if proof is None else proof.line(now_ms)
    lost = _lost(source, forecast)
    again = f"at most {forecast.re_read:,} read again{forecast.still}"
    return f"if {source} died now: {lost}, {again}, {proven}"


def _lost(source: str, forecast: Forecast) -> str:
    age_ms, at_most = forecast.age_ms, forecast.at_most
    if age_ms is not None and at_most is not None and is_silent(age_ms):
        ago = duration(age_ms / 1000)
        then = f"{forecast.not_copied:,} when {source} last answered, {ago} ago"
        return f"up to {amount(at_most, 'record')} lost ({then})"
    seconds = "" if forecast.seconds is None else f" ({duration(forecast.seconds)})"
    lost = f"{amount(forecast.not_copied, 'record')}{seconds} lost"
    if forecast.at_most is None:
        lost += " as far as known"
    elif forecast.at_most > forecast.not_copied:
        lost += f", {forecast.at_most:,} at most"
    return lost
