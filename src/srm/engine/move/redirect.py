"""How the clients of a move are told to stop and where to continue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from srm.domain.move.request import MoveRequest
from srm.domain.move.routes import Route

LEASE_MS: Final = 60_000
"""For how long a client waits without a sign of whoever holds it."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a move: whose clients, on which cluster they are, and its number."""

    move_id: str
    subjects: tuple[str, ...]
    source: str
    target: str
    generation: int


class Redirector(Protocol):
    """Tells clients; what it returns is written in the transaction of the step that asks."""

    def hold(self, attempt: Attempt, beat: int, now_ms: int) -> Mapping[str, Route]:
        """Stop the clients, or renew the hold with a higher beat."""
        ...

    def release(self, attempt: Attempt, now_ms: int) -> Mapping[str, Route]:
        """Let the clients continue where they were."""
        ...

    def go(self, attempt: Attempt, now_ms: int) -> Mapping[str, Route]:
        """Send the clients to the target."""
        ...


class RoutingRedirector:
    """Routing records, which srm.client follows."""

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

    def go(self, attempt: Attempt, now_ms: int) -> Mapping[str, Route]:
        """Send the clients to the target."""
        route = Route(
            attempt.generation, attempt.target, "go", attempt.move_id, now_ms, decided=True
        )
        return dict.fromkeys(attempt.subjects, route)


REDIRECTORS: Final[Mapping[str, Redirector]] = {"routing": RoutingRedirector()}
"""The redirectors by the name that a request gives them."""


def redirector(request: MoveRequest) -> Redirector:
    """Return the redirector that a request names."""
    return REDIRECTORS[request.redirect]
