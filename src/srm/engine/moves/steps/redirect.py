"""How the clients of a move are told to stop and where to continue.

By routing records, in the transaction of a step; and by calls of others, after it is durable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from srm.domain.moves.records.request import MoveRequest
from srm.domain.moves.routing.redirects import FenceKind, RedirectKind
from srm.domain.moves.routing.routes import Route
from srm.engine.moves.control.move_records import MoveContext

LEASE_MS: Final = 60_000
"""For how long a client waits without a sign of whoever holds it."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a move: whose clients, on which cluster they are, and its number.

    ``defaults`` are subjects of clients that nothing holds and go with the others.
    """

    move_id: str
    subjects: tuple[str, ...]
    source: str
    target: str
    generation: int
    defaults: tuple[str, ...] = ()


class RoutingRedirector:
    """Routing records, which srm.client and others follow; the steps write what it returns."""

    def hold(self, attempt: Attempt, beat: int, now_ms: int) -> Mapping[str, Route]:
        """Stop the clients, or renew the hold with a higher beat."""
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
        """Let the clients continue where they were."""
        route = Route(attempt.generation, attempt.source, "go", attempt.move_id, now_ms)
        return dict.fromkeys(attempt.subjects, route)

    def go(self, attempt: Attempt, now_ms: int, decided_ms: int = 0) -> Mapping[str, Route]:
        """Send the clients to the target; ``decided_ms`` is the broker's time, if unplanned."""
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
"""The redirector that every move has, before all others."""


def redirectors_of(context: MoveContext, request: MoveRequest) -> tuple[RedirectKind, ...]:
    """Return who tells the clients of a move: as it asks for, or as configured."""
    return request.redirect or context.forward.config.redirect.kinds


def fence_of(context: MoveContext, request: MoveRequest) -> FenceKind:
    """Return what keeps others from writing to the source: as asked for, or as configured."""
    return request.fence or context.forward.config.redirect.fence
