"""Losses of decided moves on a cluster: their routes, and the pause after an abandoned source.

The moves know both. A deleted topic, or an old copy of it, would lead clients that start now to
their home cluster, and would copy the records of a returning source unasked.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial

from srm.domain.flow_state.replication_records import Pause
from srm.domain.moves.disaster import OUTCOME_PREFIX
from srm.domain.moves.line import MoveLine
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.routing import Route, merge_tables
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.domain.text.amount import Finding, problem, some
from srm.engine.cluster_ports import Cluster, tolerate
from srm.engine.flows.supervision import operator, pause_in_force
from srm.engine.moves.attempt import Attempt
from srm.engine.moves.tables import ControlChange, ControlTables, MoveRecords
from srm.engine.ports import FlowContext
from srm.errors import SrmError

log = logging.getLogger(__name__)


def lost_routes(tables: ControlTables) -> dict[str, Route]:
    """Return the routes of decided moves that a cluster lacks; those that it has rank higher."""
    lost = (one for one in _decisions(tables.moves) if is_without_routes(one, tables.routes))
    found = [
        Attempt(plan, progress).go(progress.times_ms["gone"])
        for plan, progress in tables.moves.of(lost)
    ]
    return dict(tables.new_part(ControlChange(merge_tables(found))).routes)


def is_without_routes(line: MoveLine, routes: Mapping[str, Route]) -> bool:
    """Return whether neither a move's last attempt nor a later one leads the clients it led."""
    route = routes.get(line.led)
    return bool(line.led) and (route is None or route.generation < line.progress.attempt)


def _decisions(moves: MoveRecords) -> list[MoveLine]:
    """Return the decided moves of which a cluster has more than a line."""
    lines = moves.lines.values()
    return [line for line in lines if line.progress.is_decided and line.led and not line.ended]


def misses_routes(moves: MoveRecords, routing: Collection[bytes]) -> bool:
    """Return whether no key of a routing topic is of some decided move: it was deleted."""
    return any(line.led.encode() not in routing for line in _decisions(moves))


def lost_pause(context: FlowContext) -> Pause | None:
    """Return the pause that a flow should have and has not: that of a move without an outcome.

    A settlement stores the outcome before it ends the pause, so the pause is read first.
    """
    if pause_in_force(context) is not None:
        return None
    moves, flow = MoveRecords.read(context.target), context.config.flow
    unsettled = (
        line
        for line in _decisions(moves)
        if line.request.is_unplanned and line.request.flow == flow
        if moves.document(f"{OUTCOME_PREFIX}{line.move_id}") is None
    )
    unplanned = [
        (progress.times_ms["holding"], plan)
        for plan, progress in moves.of(unsettled)
        if progress.forecast is not None
    ]
    if not unplanned:
        return None
    unplanned.sort(key=lambda one: (one[0], one[1].move_id))
    time_ms, first = unplanned[0]
    joined = tuple(plan.move_id for _, plan in unplanned[1:])
    request, who = secrets.token_hex(8), operator()
    return Pause(request, who, reason_of_pause(first), time_ms, first.move_id, joined)


def reason_of_pause(plan: MovePlan) -> str:
    request = plan.request
    return f"unplanned {request.operation} {plan.move_id}: {request.source} is lost"


def restore_pause(context: FlowContext) -> None:
    if (pause := lost_pause(context)) is not None:
        log.warning("%s is paused again for %s", context.config.flow, some(pause.moves))
        context.own_switch.pause(pause)


def lost_route_findings(clusters: Iterable[Cluster], flow: Flow) -> Iterator[Finding]:
    """Yield a problem for each cluster that lacks routes of decided moves, with the repair."""
    for cluster in clusters:
        trouble = f"routes of decided moves on cluster {cluster.alias} are not known"
        read = partial(ControlTables.read, cluster)
        if (tables := tolerate(read, trouble, SrmError)) and (lost := _movers(tables)):
            movers = some(sorted(lost))
            yield problem(
                "lost-routes",
                f"{internal_topics.ROUTING} on {cluster.alias} lacks the routes of decided moves "
                f"({movers}): clients that start now work on their home cluster, until the next "
                f"emission of checkpoints",
                _repair(flow),
            )


def _movers(tables: ControlTables) -> set[str]:
    """Return the decided moves of which routes are lost; all of them without any route."""
    lost = {route.move_id for route in lost_routes(tables).values()}
    lines = () if tables.routes else tables.moves.lines.values()
    return lost | {line.move_id for line in lines if line.progress.is_decided}


def lost_pause_findings(context: FlowContext) -> Iterator[Finding]:
    """Yield a problem if a flow copies although the return of its source is not settled."""
    flow, trouble = context.config.flow, f"the pause of {context.config.flow} is not known"
    if (pause := tolerate(lambda: lost_pause(context), trouble, SrmError)) is not None:
        yield problem(
            "lost-pause",
            f"{flow} has lost its pause for {some(pause.moves)}: records of {flow.source} are "
            f"copied, though its return is not settled",
            _repair(flow),
        )


def _repair(flow: Flow) -> str:
    return f"srm checkpoints emit --flow '{flow}'"
