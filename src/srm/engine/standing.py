"""What it would cost if the source of a flow died now: at any moment, from the target alone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from srm.domain.amount import amount
from srm.domain.move.forecast import Forecast
from srm.domain.move.request import MoveRequest
from srm.domain.proof_records import FlowProof
from srm.domain.silence import is_silent
from srm.engine.away import away_cluster
from srm.engine.move.salvage import Salvage, read_salvage
from srm.engine.move.store import MoveContext
from srm.engine.ports import FlowContext


@dataclass(frozen=True)
class Standing:
    """The standing forecast of a flow; ``line`` says it to people."""

    line: str
    forecast: Forecast
    proof: FlowProof | None = None


def read_standing(context: FlowContext, also: Collection[str] = ()) -> tuple[Standing, Salvage]:
    """Forecast the loss of a flow's source, with what was last proven of its checkpoints.

    No request for each group: it stays cheap with thousands of them.

    Args:
        context: the flow.
        also: topics whose positions are wanted with it, though they do not move: heartbeats.

    Raises:
        SrmError: the target does not answer.
    """
    flow = context.config.flow
    found = read_salvage(
        without_source(context),
        MoveRequest("failover", flow.source, flow.target, mode="unplanned"),
        for_forecast=True,
        also=also,
    )
    now_ms = context.now_ms()
    forecast = found.forecast(now_ms)
    return Standing(_line(flow.source, forecast, found.proof, now_ms), forecast, found.proof), found


def without_source(context: FlowContext) -> MoveContext:
    """Return the flow and its opposite as an unplanned move has them: the source is not asked."""
    return as_move(replace(context, source=away_cluster(context.config.flow.source)))


def as_move(context: FlowContext) -> MoveContext:
    """Return a flow and its opposite as a move along it has them."""
    opposite = context.opposite or replace(context.config, flow=context.config.flow.reversed)
    back = replace(
        context,
        config=opposite,
        source=context.target,
        target=context.source,
        maps=context.reverse_maps,
        reverse_maps=context.maps,
        switch=None,
        opposite=context.config,
    )
    return MoveContext(context, back)


def _line(source: str, forecast: Forecast, proof: FlowProof | None, now_ms: int) -> str:
    proven = "no group proven yet" if proof is None else proof.line(now_ms)
    lost = _lost(source, forecast)
    return f"if {source} died now: {lost}, at most {forecast.re_read:,} read again, {proven}"


def _lost(source: str, forecast: Forecast) -> str:
    age_ms, at_most = forecast.age_ms, forecast.at_most
    if age_ms is not None and at_most is not None and is_silent(age_ms):
        then = f"{forecast.not_copied:,} when {source} was last heard of, {age_ms / 1000:.0f} s ago"
        return f"up to {amount(at_most, 'record')} lost ({then})"
    seconds = "" if forecast.seconds is None else f" ({forecast.seconds:.1f} s)"
    lost = f"{amount(forecast.not_copied, 'record')}{seconds} lost"
    if forecast.at_most is None:
        lost += " as far as is known"
    elif forecast.at_most > forecast.not_copied:
        lost += f", {forecast.at_most:,} at most"
    return lost
