"""Decisions of a client to leave a cluster, wait and open, and its announcements; without Kafka."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from srm.domain.moves.routing import ERA, Ack, AckState, ClientKind, Route

Step = Literal["stay", "finish", "leave", "hold", "open"]


def next_step(works_on: str | None, route: Route, *, busy: bool = False) -> Step:
    """Decide what a client does about the present route; ``works_on`` is None if it has left.

    ``busy``: a transaction is open, which can only end on the old cluster.

    Returns:
        ``stay``: do nothing; ``finish``: wait for the transaction, then decide again; ``leave``:
        commit or flush, leave, decide again; ``hold``: wait and announce it; ``open``: start there.
    """
    if works_on is None:
        return "hold" if route.state == "hold" else "open"
    if route.state == "go" and route.cluster == works_on:
        return "stay"
    return "finish" if busy else "leave"


def is_given_up(works_on: str, followed: Route | None, route: Route) -> bool:
    """Return whether an unplanned move has abandoned the cluster a client works on.

    The client then leaves it at once. This includes an unplanned move the client missed, because
    the cluster that took over could not be read at the time. ``followed`` is the route that brought
    it there.
    """
    if route.gives_up(works_on):
        return True
    missed = followed is not None and route.generation % ERA and route.era > followed.era
    return bool(missed) and route.cluster != works_on


def same_order(one: Route | None, other: Route | None) -> bool:
    """Return whether two routes require the same of a client, as a renewed hold does."""
    return _order(one) == _order(other)


def _order(route: Route | None) -> tuple[object, ...]:
    return () if route is None else (route.generation, route.state, route.cluster)


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment by the two clocks: epoch milliseconds and monotonic seconds."""

    wall_ms: int
    monotonic_s: float


class Announcement:
    """State of one client on one subject, with the time each state was reached; builds its Acks.

    Invariant: all states belong to one generation. A hold discards the states after an earlier
    hold of the same generation.
    """

    def __init__(self, subject: str, client: str, kind: ClientKind) -> None:
        self._subject = subject
        self._client = client
        self._kind = kind
        self._route: Route | None = None
        self._state: AckState = "resumed"
        self._reached: dict[AckState, Moment] = {}
        self._positions: dict[str, int] = {}
        self._uncommitted: dict[str, int] = {}

    def reach(
        self, route: Route, state: AckState, now: Moment, positions: Mapping[str, int] | None = None
    ) -> None:
        """Record a state of a generation; the first position of each partition is kept."""
        if self._route is None or self._route.generation != route.generation or state == "held":
            self._reached.clear()
            self._positions.clear()
        elif self._route.cluster != route.cluster:
            self._positions.clear()
            self._reached.pop("processed", None)
        # A new assignment does not undo "processed".
        further = state == "resumed" and "processed" in self._reached
        self._route, self._state = route, "processed" if further else state
        self._reached.setdefault(state, now)
        for partition, offset in (positions or {}).items():
            self._positions.setdefault(partition, offset)

    def lose(self, uncommitted: Mapping[str, int]) -> None:
        """Add records that were processed and could not be committed."""
        for partition, count in uncommitted.items():
            self._uncommitted[partition] = self._uncommitted.get(partition, 0) + count

    def forget_losses(self) -> None:
        """Reset the count: the client leaves a cluster on which nothing is lost yet."""
        self._uncommitted.clear()

    def has_reached(self, state: AckState) -> bool:
        """Return whether a state was reached in the present generation."""
        return state in self._reached

    def ack(self, now: Moment) -> Ack | None:
        """Build the record of the present state, None before the first."""
        if self._route is None:
            return None
        ages: dict[AckState, int] = {
            state: max(0, round((now.monotonic_s - since.monotonic_s) * 1000))
            for state, since in self._reached.items()
        }
        return Ack(
            self._subject,
            self._client,
            self._route.generation,
            self._state,
            self._route.cluster,
            self._reached[self._state].wall_ms,
            dict(self._positions),
            self._kind,
            socket.gethostname(),
            dict(self._uncommitted),
            ages,
        )
