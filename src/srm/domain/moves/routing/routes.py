"""Routing records: which cluster the clients of a group or topic shall use, or that they hold.

Kept in the compacted topic ``srm-routing.internal`` on every cluster, partition 0, JSON values:

=========================  ===========================  ==========================================
key                        written by                   value
=========================  ===========================  ==========================================
group:<group>              a move                       :class:`Route` for consumers of the group
topic:<topic>              a move                       :class:`Route` for producers to the topic
home:<cluster>             a move of everything         :class:`Route` for clients at home there
ack:<subject>:<client id>  a client                     :class:`Ack`: that it is there, what it did
clock                      who looks at a move          nothing: the broker stamps what time it is
=========================  ===========================  ==========================================

A client reads the topic on all clusters it can reach and takes the record of the **highest rank**
among all that it has ever seen of a subject, on whatever cluster and in whatever order. Each
attempt of a move has a generation of its own, higher than any before it; within one attempt *hold*
is followed by *released* or by *gone*, and *gone* is the highest: it follows a decision. A cluster
that was away when clients were sent elsewhere cannot send them back with its old record. No record
means: the route of the home cluster; without one, the home cluster, go.

An unplanned move takes the next multiple of 2^32 as its generation, so it is above all that the
cluster may have seen that it does not ask, and clients can tell that they need not ask it either
(:meth:`Route.gives_up`). Read generations as 64-bit integers.

``group:<group>`` and ``topic:<topic>`` are called *subjects* below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final, Literal

from pydantic import ValidationError

from srm.domain.text.documents import adapter, encode
from srm.errors import IntegrityError

RouteState = Literal["go", "hold"]
AckState = Literal["held", "resumed", "processed"]
ClientKind = Literal["consumer", "producer"]

CLOCK_KEY: Final = b"clock"
ERA: Final = 1 << 32
"""Generations between two unplanned moves; JSON keeps integers up to 2^53, enough for 2^21."""

_ACK = "ack:"
_rank = attrgetter("rank")


def group_subject(group: str) -> str:
    """Subject of the route that consumers of the group follow."""
    return f"group:{group}"


def topic_subject(topic: str) -> str:
    """Subject of the route that producers to the topic follow."""
    return f"topic:{topic}"


def home_subject(cluster: str) -> str:
    """Subject of the route for clients at home on a cluster that no other route names."""
    return f"home:{cluster}"


@dataclass(frozen=True, slots=True)
class Route:
    """Where the clients of one subject belong.

    ``cluster`` is the alias to use on ``go`` and the alias the clients leave on ``hold``.
    ``generation`` is the number of the attempt that wrote it: 1 or more, not always consecutive;
    0 is the route that follows from the absence of a record. ``decided`` tells a ``go`` that
    follows the decision of a move from one that ends a hold.

    A generation is a number of 64 bits. A multiple of :data:`ERA`, other than 0, was made by an
    unplanned move: the cluster that clients leave is given up, see :meth:`gives_up`.

    A hold counts for ``lease_ms`` from when a client has first seen its newest ``beat``, by the
    client's own monotonic clock; after that the client works on ``cluster`` again. 0 is no limit.
    ``time_ms`` is the epoch time of the writer, for people and for whoever renews.
    ``decided_ms`` is the broker's time of an unplanned decision, 0 in all other routes: only
    unplanned moves to different clusters can have one generation, and the later decision wins.
    """

    generation: int
    cluster: str
    state: RouteState
    move_id: str = ""
    time_ms: int = 0
    decided: bool = False
    lease_ms: int = 0
    beat: int = 0
    decided_ms: int = 0

    @property
    def phase(self) -> int:
        """Order of what one attempt writes: 0 hold, 1 released, 2 gone."""
        if self.state == "hold":
            return 0
        return 2 if self.decided else 1

    @property
    def rank(self) -> tuple[int, int, int, int, str, str, int, int, bool]:
        """Order of precedence: generation, phase, beat, time of the decision.

        The rest only makes the order total, so that all clients decide alike whatever they read
        first.
        """
        return (
            self.generation,
            self.phase,
            self.beat,
            self.decided_ms,
            self.move_id,
            self.cluster,
            self.lease_ms,
            self.time_ms,
            self.decided,
        )

    @property
    def era(self) -> int:
        """How many unplanned moves, at least, were begun up to this one."""
        return self.generation // ERA

    def gives_up(self, cluster: str) -> bool:
        """Whether it follows from an unplanned move that has given this cluster up.

        Its clients leave at once: nothing is waited for that only that cluster could answer. A
        route that ends such a hold gives nothing up any more.
        """
        if self.generation == 0 or self.generation % ERA:
            return False
        if self.state == "hold":
            return cluster == self.cluster
        return self.decided and cluster != self.cluster

    def is_hold_of(self, move_id: str, generation: int) -> bool:
        """Whether it holds clients for this attempt of this move."""
        return (self.state, self.move_id, self.generation) == ("hold", move_id, generation)

    def expire(self) -> Route:
        """Return what a hold counts as when its lease has run out: go, where the clients were."""
        return replace(self, state="go", beat=0, time_ms=0)

    def value(self) -> bytes:
        """Encode the record value."""
        return encode(self)


@dataclass(frozen=True, slots=True)
class Ack:
    """What one client did about generation ``generation`` of a subject's route, and that it lives.

    A client writes one when it starts, whatever the generation (0: nobody ever set a route), after
    each step below, and again every half minute; a tombstone when it is closed. So the records are
    also the list of the clients that follow the routes of a subject: one whose record is older
    than a few such intervals has died without a word.

    ``held``: it has flushed or committed, has no transaction open, and has left. ``resumed``: it
    works on ``cluster``; ``positions`` maps ``topic-partition`` to the offset it started at.
    ``processed``: a consumer has processed its first record of this generation.

    ``kind`` is empty in records of older clients. ``host`` is where it runs. ``uncommitted`` counts
    by ``topic-partition`` the records that a consumer processed before and could not commit, which
    somebody reads again. ``ages_ms`` says how long before this record was written each state of
    this generation was reached, by the client's monotonic clock: the broker's timestamp of the
    record less the age is the time by the broker's clock. ``time_ms`` is when ``state`` was reached
    by the client's clock.
    """

    subject: str
    client: str
    generation: int
    state: AckState
    cluster: str
    time_ms: int
    positions: Mapping[str, int] = field(default_factory=dict)
    kind: ClientKind | Literal[""] = ""
    host: str = ""
    uncommitted: Mapping[str, int] = field(default_factory=dict)
    ages_ms: Mapping[AckState, int] = field(default_factory=dict)

    @property
    def written_ms(self) -> int:
        """When this was written, by the client's clock: repeated, it is older than its state."""
        return self.time_ms + self.ages_ms.get(self.state, 0)

    def key(self) -> bytes:
        """Encode the record key: one record per subject and client."""
        return f"{_ACK}{self.subject}:{self.client}".encode()

    def value(self) -> bytes:
        """Encode the record value."""
        return encode(self)


def merge(one: Route | None, other: Route | None) -> Route | None:
    """Return the route that takes precedence; commutative, associative and idempotent."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=_rank)


def merge_tables(tables: Iterable[Mapping[str, Route]]) -> dict[str, Route]:
    """Merge what several clusters say about all subjects."""
    merged: dict[str, Route] = {}
    for table in tables:
        for subject, route in table.items():
            merged[subject] = max(merged.get(subject, route), route, key=_rank)
    return merged


def home_route(cluster: str) -> Route:
    """Route of a subject without a record: its home cluster, go."""
    return Route(0, cluster, "go")


def next_generation(routes: Iterable[Route | None], *attempts: int, unplanned: bool = False) -> int:
    """Return a generation above all the routes given, and above the attempts.

    That of an ``unplanned`` move is the next multiple of :data:`ERA`: above all that a cluster
    which was not asked can have, as planned moves count one by one.
    """
    highest = max([0, *(route.generation for route in routes if route is not None), *attempts])
    return (highest // ERA + 1) * ERA if unplanned else highest + 1


def is_subject(key: bytes) -> bool:
    """Whether a record of the topic is a route."""
    return key.startswith((b"group:", b"topic:", b"home:"))


def is_ack(key: bytes) -> bool:
    """Whether a record of the topic is what a client says."""
    return key.startswith(_ACK.encode())


def decode_route(key: bytes, value: bytes) -> Route:
    """Decode a route.

    Raises:
        IntegrityError: the value is not a route.
    """
    try:
        key.decode()
        return adapter(Route).validate_json(value)
    except UnicodeDecodeError as error:
        raise IntegrityError(f"routing record {key!r} has no readable key") from error
    except ValidationError as error:
        raise IntegrityError(
            f"routing record {key.decode(errors='replace')} is not a route: "
            f"{error.errors()[0]['msg']}"
        ) from error


def fold_routes(
    history: Mapping[bytes, Sequence[bytes]], damaged: Callable[[IntegrityError], None]
) -> dict[str, Route]:
    """Take the route of the highest rank of each subject from all that the log still holds.

    The last record is not always the highest: an older version of srm, or somebody's own tool, may
    have written without a fence. A record that cannot be read is handed to ``damaged`` and passed
    over: it must not stop the moves of everybody else.
    """
    routes: dict[str, Route] = {}
    for key, values in history.items():
        if not is_subject(key):
            continue
        for value in values:
            try:
                route = decode_route(key, value)
            except IntegrityError as error:
                damaged(error)
                continue
            routes[key.decode()] = max(routes.get(key.decode(), route), route, key=_rank)
    return routes


def acks_of(
    records: Mapping[bytes, bytes], damaged: Callable[[IntegrityError], None] | None = None
) -> tuple[Ack, ...]:
    """Decode the acknowledgements among the records of one cluster's routing topic.

    Raises:
        IntegrityError: a value is not an acknowledgement, and nobody takes it as ``damaged``.
    """
    acks = []
    for key, value in records.items():
        if is_ack(key):
            try:
                acks.append(adapter(Ack).validate_json(value))
            except ValidationError as error:
                wrong = IntegrityError(
                    f"routing record {key.decode(errors='replace')} is not an acknowledgement: "
                    f"{error.errors()[0]['msg']}"
                )
                if damaged is None:
                    raise wrong from error
                damaged(wrong)
    return tuple(sorted(acks, key=lambda ack: (ack.subject, ack.client)))
