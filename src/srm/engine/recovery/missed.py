"""Routes that a cluster missed while it was unavailable, written to it as soon as it is back.

Until then a plan that can read only this cluster decides on the routes from before its loss.
"""

from __future__ import annotations

import logging

from srm.domain.moves.routing.routes import Route
from srm.domain.names import internal_topics
from srm.engine.cluster_ports import Cluster
from srm.engine.moves.control.control import ControlTables, read_routes
from srm.engine.moves.control.move_records import as_move
from srm.engine.moves.control.registers import level
from srm.engine.ports import FlowContext
from srm.errors import SrmError

log = logging.getLogger(__name__)


def try_to_level(context: FlowContext) -> None:
    """Write the routes and moves that a cluster of a flow lacks to it; a failure is logged.

    Writers are opened, which fences steps of moves, only if something is to be written.
    """
    sides = context.target, context.source
    try:
        target, source = (_routes(cluster) for cluster in sides)
        if target == source:
            return
        tables = [ControlTables.read(cluster) for cluster in sides]
        aliases = frozenset(cluster.alias for cluster in sides)
        if any(one.lacks(other, aliases).routes for one, other in (tables, reversed(tables))):
            level(as_move(context))
    except SrmError as error:
        log.warning("%s: the routes of both clusters: %s", context.config.flow, error)


def _routes(cluster: Cluster) -> dict[str, Route]:
    return read_routes(cluster, cluster.compacted_topic(internal_topics.ROUTING).read_history())
