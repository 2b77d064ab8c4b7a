"""Orders for a supervisor from the routes of its program's group and topics; without Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from srm.domain.moves.routing.routes import Route


@dataclass(frozen=True, slots=True)
class Order:
    """The cluster the program runs on, None for none, and the reason.

    ``held``: the held subjects.
    ``apart``: none is held, but they are on several clusters, and a program works on one.
    """

    cluster: str | None
    held: tuple[str, ...] = ()
    apart: bool = False


def order_of(routes: Mapping[str, Route]) -> Order:
    """Return the order for the present route of each subject."""
    held = tuple(subject for subject, route in routes.items() if route.state == "hold")
    if held:
        return Order(None, held)
    clusters = {route.cluster for route in routes.values()}
    if len(clusters) > 1:
        return Order(None, apart=True)
    return Order(clusters.pop())
