"""Routing records: which cluster the clients of a group or topic shall use, or that they hold.

Kept in the compacted topic ``srm-routing.internal`` on every cluster, partition 0, JSON values:

=========================  ===========================  ==========================================
key                        written by                   value
=========================  ===========================  ==========================================
group:<group>              a move                       :class:`Route` for consumers of the group
topic:<topic>              a move                       :class:`Route` for producers to the topic
ack:<subject>:<client id>  a client                     :class:`Ack`: that it is there, what it did
=========================  ===========================  ==========================================

A client reads the topic on all clusters it can reach and merges: **the higher generation wins**.
Each change of a route raises its generation, so a cluster that was away when clients were sent
elsewhere cannot send them back with its old record. No record means: the home cluster, go.

``group:<group>`` and ``topic:<topic>`` are called *subjects* below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from srm.errors import IntegrityError

RouteState = Literal["go", "hold"]
AckState = Literal["held", "resumed", "processed"]
ClientKind = Literal["consumer", "producer"]

_ACK = "ack:"


def group_subject(group: str) -> str:
    """Subject of the route that consumers of the group follow."""
    return f"group:{group}"


def topic_subject(topic: str) -> str:
    """Subject of the route that producers to the topic follow."""
    return f"topic:{topic}"


@dataclass(frozen=True, slots=True)
class Route:
    """Where the clients of one subject belong.

    ``cluster`` is the alias to use on ``go`` and the alias the clients leave on ``hold``.
    ``generation`` starts at 1; 0 is the route that follows from the absence of a record.
    """

    generation: int
    cluster: str
    state: RouteState
    move_id: str = ""
    time_ms: int = 0

    @property
    def rank(self) -> tuple[int, bool, str, str, int]:
        """Order of precedence: generation, and where two moves raced to one, hold before go.

        The rest only makes the order total, so that all clients decide alike whatever they read
        first.
        """
        return (self.generation, self.state == "hold", self.move_id, self.cluster, self.time_ms)

    def value(self) -> bytes:
        """Encode the record value."""
        return _ROUTE.dump_json(self)


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
    record less the age is the time by the broker's clock. ``time_ms`` is the client's clock.
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

    def key(self) -> bytes:
        """Encode the record key: one record per subject and client."""
        return f"{_ACK}{self.subject}:{self.client}".encode()

    def value(self) -> bytes:
        """Encode the record value."""
        return _ACK_ADAPTER.dump_json(self)


_ROUTE = TypeAdapter(Route)
_ACK_ADAPTER = TypeAdapter(Ack)


def merge(one: Route | None, other: Route | None) -> Route | None:
    """Return the route that takes precedence; commutative, associative and idempotent."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda route: route.rank)


def merge_tables(tables: Iterable[Mapping[str, Route]]) -> dict[str, Route]:
    """Merge what several clusters say about all subjects."""
    merged: dict[str, Route] = {}
    for table in tables:
        for subject, route in table.items():
            merged[subject] = max(merged.get(subject, route), route, key=lambda r: r.rank)
    return merged


def home_route(cluster: str) -> Route:
    """Route of a subject without a record: its home cluster, go."""
    return Route(0, cluster, "go")


def successor(
    routes: Iterable[Route | None], cluster: str, state: RouteState, move_id: str, now_ms: int
) -> Route:
    """Build the route that overrides all the given ones of one subject."""
    latest = reduce(merge, routes, None)
    generation = latest.generation if latest is not None else 0
    return Route(generation + 1, cluster, state, move_id, now_ms)


def is_subject(key: bytes) -> bool:
    """Whether a record of the topic is a route."""
    return key.startswith((b"group:", b"topic:"))


def decode_route(key: bytes, value: bytes) -> Route:
    """Decode a route.

    Raises:
        IntegrityError: the value is not a route.
    """
    try:
        return _ROUTE.validate_json(value)
    except ValidationError as error:
        raise IntegrityError(
            f"routing record {key.decode(errors='replace')} is not a route: "
            f"{error.errors()[0]['msg']}"
        ) from error


def routes_of(records: Mapping[bytes, bytes]) -> dict[str, Route]:
    """Decode the routes among the records of one cluster's routing topic, by subject.

    Raises:
        IntegrityError: a value is not a route.
    """
    return {
        key.decode(): decode_route(key, value) for key, value in records.items() if is_subject(key)
    }


def acks_of(records: Mapping[bytes, bytes]) -> tuple[Ack, ...]:
    """Decode the acknowledgements among the records of one cluster's routing topic.

    Raises:
        IntegrityError: a value is not an acknowledgement.
    """
    acks = []
    for key, value in records.items():
        if key.startswith(_ACK.encode()):
            try:
                acks.append(_ACK_ADAPTER.validate_json(value))
            except ValidationError as error:
                raise IntegrityError(
                    f"routing record {key.decode(errors='replace')} is not an acknowledgement: "
                    f"{error.errors()[0]['msg']}"
                ) from error
    return tuple(sorted(acks, key=lambda ack: (ack.subject, ack.client)))
