"""Redirection of the clients of a move: by routing records, and by other redirectors.

Routing records are part of a step's transaction; other redirectors are called after its commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from srm.domain.moves.routing.routes import Route

LEASE_MS: Final = 60_000
"""Lease of a hold: how long a client waits without a renewal."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a move: its number, clients and clusters.

    ``defaults``: subjects of clients that are not held but redirected with the others.
    """

    move_id: str
    subjects: tuple[str, ...]
    source: str
    target: str
    generation: int
    defaults: tuple[str, ...] = ()


class RoutingRedirector:
    """Maker of routing records, which srm.client and others follow; the steps write them."""

    def hold(self, attempt: Attempt, beat: int, now_ms: int) -> Mapping[str, Route]:
        """Return the routes that stop the clients, or renew the hold with a higher beat."""
        route = Route(
            attempt.generation,
            attempt.source,
            "hold",
            attempt.move_id,
            now_ms,
            lease_ms=LEASE_MS,
            beat=beat,
        )
        return dict.fromkeys(attempt.subjects, route)

    def release(self, attempt: Attempt, now_ms: int) -> Mapping[str, Route]:
        """Return the routes that let the clients continue on the source."""
        route = Route(attempt.generation, attempt.source, "go", attempt.move_id, now_ms)
        return dict.fromkeys(attempt.subjects, route)

    def go(self, attempt: Attempt, now_ms: int, decided_ms: int = 0) -> Mapping[str, Route]:
        """Return the routes to the target; ``decided_ms`` is the broker's time, if unplanned."""
        route = Route(
            attempt.generation,
            attempt.target,
            "go",
            attempt.move_id,
            now_ms,
            decided=True,
            decided_ms=decided_ms,
        )
        return dict.fromkeys((*attempt.subjects, *attempt.defaults), route)


ROUTING: Final = RoutingRedirector()
"""The redirector that every move has, as the first one."""
