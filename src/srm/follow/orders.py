"""What the routes of all that a program works with tell its supervisor: no Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from srm.domain.moves.routing.routes import Route


@dataclass(frozen=True, slots=True)
class Order:
    """Where the program runs, None for nowhere, and why.

    ``held`` are the subjects that are held; ``apart`` is true where none is, but they are not all
    on one cluster: a program works on one.
    """

    cluster: str | None
    held: tuple[str, ...] = ()
    apart: bool = False


def order_of(routes: Mapping[str, Route]) -> Order:
    """Decide by the present route of each subject."""
    held = tuple(subject for subject, route in routes.items() if route.state == "hold")
    if held:
        return Order(None, held)
    clusters = {route.cluster for route in routes.values()}
    if len(clusters) > 1:
        return Order(None, apart=True)
    return Order(clusters.pop())
