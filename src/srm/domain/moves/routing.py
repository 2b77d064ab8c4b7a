"""Routes of the clients of topics and groups, and orders to redirectors.

A client reads ``__srm-routing`` on all reachable clusters. Of the records that lead it, the one of
the **highest rank** that it has ever seen counts, on any cluster and in any order. Each attempt of
a move has its own generation; in it *released* or *gone* follows *hold*. Thus a cluster that was
unavailable at a move cannot send clients back. A release leads each to where it was.

The other redirectors are *called* when the step is durable: at least once, each with an
idempotency key. ``manual`` only shows tasks to operators; the brokers show when these are done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BeforeValidator

from srm.domain.text.documents import Document, decode
from srm.errors import IntegrityError, UsageError

RouteState = Literal["go", "hold"]

CLOCK_KEY: Final = b"clock"
LEASE_MS: Final = 60_000
"""Lease of a hold: how long a client waits without a renewal."""
ERA: Final = 1 << 18
"""Generations between two unplanned moves; JSON keeps orders in seconds of it beyond 2300."""

_rank = attrgetter("rank")


def group_subject(group: str) -> str:
    return f"group:{group}"


def topic_subject(topic: str) -> str:
    return f"topic:{topic}"


def home_subject(cluster: str) -> str:
    """Return the subject of the route for clients at home on a cluster, without another route."""
    return f"home:{cluster}"


def subjects_of(topics: Iterable[str], groups: Iterable[str]) -> tuple[str, ...]:
    return (*map(topic_subject, topics), *map(group_subject, groups))


@dataclass(frozen=True, slots=True)
class Route(Document):
    """Route of the clients of one subject.

    ``generation``: number (64 bits) of the attempt that wrote it, 0 without a record; a multiple of
    :data:`ERA` is by an unplanned move, see :meth:`gives_up`.
    ``cluster``: alias to use on ``go``, and to leave on ``hold``.
    ``time_ms``: epoch milliseconds of the writer, for operators and for renewals.
    ``decided``: a ``go`` that follows the decision of a move; otherwise it ends a hold.
    ``lease_ms``: after this time since its newest ``beat``, by its monotonic clock, a held client
    works on ``cluster`` again; 0 is unlimited.
    ``homes``: clusters whose clients it leads, see :class:`KnownRoutes`; all if empty.
    ``left``: cluster that a decided move has left; its clients, too, follow it.
    ``others``: earlier decided routes of the subject that lead clients of other homes.
    """

    KIND = "routing record"
    generation: int
    cluster: str
    state: RouteState
    move_id: str = ""
    time_ms: int = 0
    decided: bool = False
    lease_ms: int = 0
    beat: int = 0
    homes: tuple[str, ...] = ()
    left: str = ""
    others: tuple[Route, ...] = ()

    @property
    def phase(self) -> int:
        """Order of the records of one attempt: 0 hold, 1 released, 2 gone."""
        return 0 if self.state == "hold" else 1 + self.decided

    @property
    def rank(self) -> tuple[Any, ...]:
        """Order of precedence: generation, phase, beat; made total. The more homes the higher."""
        return (
            *(self.generation, self.phase, self.beat),
            *(self.move_id, self.cluster, self.lease_ms, self.time_ms, self.decided),
            *(not self.homes, len(self.homes), self.homes, self.left),
            *(len(self.others), [one.rank for one in self.others]),
        )

    @property
    def attempt(self) -> tuple[int, str]:
        return self.generation, self.move_id

    @property
    def era(self) -> int:
        """Lower bound of the number of unplanned moves up to this one."""
        return self.generation // ERA

    def gives_up(self, cluster: str) -> bool:
        """Return whether an unplanned move abandoned this cluster: clients leave it at once."""
        if self.generation == 0 or self.generation % ERA:
            return False
        if self.state == "hold":
            return cluster == self.cluster
        return self.decided and cluster != self.cluster

    @property
    def leaves_home(self) -> bool:
        """Return whether clients may be led to another cluster than their home."""
        return {*self.homes} != {self.cluster}

    @property
    def source(self) -> str:
        """Cluster whose clients it leads, wherever their home is."""
        return self.left if self.decided else self.cluster

    @property
    def each(self) -> tuple[Route, ...]:
        """Itself, and the routes of other homes."""
        return self, *self.others

    def after(self, old: Route | None) -> Route:
        """Return the route in place of a lower one: it loses no client that that one has led.

        It leads on those that came to its source; ``others`` lead the rest.
        """
        is_same = old is not None and (self.homes, self.others) == (old.homes, old.others)
        if old is None or is_same or old.rank >= self.rank or not self.homes:
            return self
        came = [one.homes for one in old.each if one.cluster == self.source]
        if not all(came):
            return replace(self, homes=(), others=())
        others = list[Route]()
        for one in sorted((*old.each, *self.others), key=_rank, reverse=True):
            led = {*self.homes}.union(*(other.homes for other in others))
            if one.state == "go" and one.homes and one.leaves_home and led.isdisjoint(one.homes):
                others.append(replace(one, others=()))
        return replace(self, others=tuple(others))

    def expire(self) -> Route:
        return replace(self, state="go", beat=0, time_ms=0)


def merge_tables(tables: Iterable[Mapping[str, Route]]) -> dict[str, Route]:
    merged: dict[str, Route] = {}
    read = [item for table in tables for item in table.items()]
    distinct = {id(route): route for _, route in read}  # few: those of one beat are decoded once
    order = {id(one): at for at, one in enumerate(sorted(distinct.values(), key=_rank))}
    for subject, route in sorted(read, key=lambda item: order[id(item[1])]):
        merged[subject] = route.after(merged.get(subject))
    return merged


def home_route(cluster: str) -> Route:
    return Route(0, cluster, "go")


@dataclass(frozen=True)
class KnownRoutes:
    """The routes that the clients at home on one cluster have read, as long as they may count."""

    home: str
    _all: dict[str, dict[tuple[int, str], Route]] = field(default_factory=lambda: defaultdict(dict))
    _homes: set[Route] = field(default_factory=set)

    def add(self, subject: str, route: Route) -> None:
        known = self._all[subject]
        for one in route.each:
            known[one.attempt] = max(known.get(one.attempt, one), one, key=_rank)
        if is_home(subject):
            self._homes.add(route)

    def of(self, subject: str) -> Route:
        """Return the route of the highest rank that leads these clients, else the home cluster's.

        A route leads the clients of its ``homes``, and those that lower routes have led to its
        source: an unplanned move may not know where its clients have come from. Clients that a
        route of the subject leads follow a later one for all clients of its cluster, but none for
        those of their home: no gate has checked it.
        """
        led, known = home_route(self.home), self._all[subject]
        for route in sorted({*known.values(), *self._homes}, key=_rank):
            came, is_at_home = led.cluster == route.source, self.home in route.homes
            if known.get(route.attempt) == route:
                left_out = led.generation == 0 and bool(route.homes)
                leads = (came and not left_out) or is_at_home or not route.homes
            elif led in known.values():
                leads = came and route.cluster != led.cluster
            else:
                leads = came or is_at_home
            led = route if leads else led
        if led in known.values() and self.home in (led.homes or {self.home}):
            for old in [one for one in known.values() if one.rank < led.rank]:
                del known[old.attempt]
        return led


def next_generation(routes: Iterable[Route | None], *attempts: int, unplanned_ms: int = 0) -> int:
    """Return a generation above those of the given routes and attempts.

    ``unplanned_ms``: broker's time of an unplanned move, whose generation is a multiple of
    :data:`ERA` not below its seconds: above all on clusters that were not queried.
    """
    highest = max([0, *(route.generation for route in routes if route is not None), *attempts])
    era = max(highest // ERA + 1, unplanned_ms // 1000) if unplanned_ms else 0
    return era * ERA or highest + 1


def is_subject(key: bytes) -> bool:
    return key.startswith((b"group:", b"topic:", b"home:"))


def is_home(subject: str) -> bool:
    return subject.startswith(home_subject(""))


def decode_route(key: bytes, value: bytes) -> Route:
    try:
        subject = key.decode()
        return _decode_route(value)
    except UnicodeDecodeError as error:
        raise IntegrityError(f"routing record {key!r} has no readable key") from error
    except IntegrityError as error:
        raise IntegrityError(f"routing record {subject}{error}") from error


@lru_cache(maxsize=1024)
def _decode_route(value: bytes) -> Route:
    """Decode a value once: a beat of a hold writes the same for thousands of subjects."""
    return decode(Route, "", value)


RedirectKind = Literal["routing", "webhook", "command", "manual"]
CallStep = Literal["hold", "release", "go"]
CallState = Literal["calling", "done", "failed", "superseded"]
FenceKind = Literal["none", "acl"]

KINDS: Final[tuple[RedirectKind, ...]] = get_args(RedirectKind)
ROUTING_ALONE: Final[tuple[RedirectKind, ...]] = ("routing",)
ORDER_VERSION: Final = 1

_PHASES: Final[Mapping[CallStep, int]] = {"hold": 0, "release": 1, "go": 2}


def in_order(names: Iterable[str]) -> tuple[RedirectKind, ...]:
    """Check a list of redirectors; ``routing`` is always the first, named or not."""
    given = tuple(names)
    known = tuple(kind for name in given for kind in KINDS if kind == name)
    if len(known) < len(given):
        unknown = ", ".join(repr(name) for name in given if name not in KINDS)
        raise UsageError(f"redirector {unknown} is unknown: there are {', '.join(KINDS)}")
    if len(set(known)) < len(known):
        raise UsageError(f"redirectors are named twice: {', '.join(known)}")
    if "routing" in known[1:]:
        others = ", ".join(kind for kind in known if kind != "routing")
        raise UsageError(
            f"redirector routing must be first, a move holds clients by it: routing, {others}"
        )
    return known if "routing" in known or not known else (*ROUTING_ALONE, *known)


def _split(value: Any) -> Any:
    """Accept a list, or comma-separated text as in forms and earlier versions."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, Sequence) and all(isinstance(name, str) for name in value):
        try:
            return in_order(value)
        except UsageError as error:
            raise ValueError(str(error)) from error
    return value


RedirectNames = Annotated[tuple[RedirectKind, ...], BeforeValidator(_split)]


@dataclass(frozen=True, slots=True)
class Call:
    """Result of one call of a redirector; ``said``: its answer, or the reason if there is none.

    Until then it is ``calling``: a killed process has made it, or not. ``superseded``: by a later
    move of its clients.
    """

    state: CallState
    time_ms: int
    said: str = ""


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """A cluster by its alias, and the addresses for its clients."""

    alias: str
    bootstrap_servers: str


@dataclass(frozen=True, slots=True)
class RedirectOrder(Document):
    """Order to a webhook or a command; its JSON is a documented, versioned format.

    ``key``: the same in every repetition of an order.
    ``order``: grows with each step and attempt of any move of these clients. Ignore an order lower
    than one already obeyed: it is late.
    ``step``: *hold* (stop, finish, leave), *release* (resume on the source), *go* (on the target).
    ``mode``: in unplanned the source is abandoned, and there is no *hold*.
    ``replicas``: copies of the topics on the target.
    ``members``: members of the groups on the source at planning, as ``client id@host``.
    """

    KIND = "order"
    key: str
    order: int
    step: CallStep
    move_id: str
    attempt: int
    operation: str
    mode: Literal["planned", "unplanned"]
    source: ClusterAddress
    target: ClusterAddress
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    replicas: Mapping[str, str] = field(default_factory=dict)
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    version: int = ORDER_VERSION


def order_number(attempt: int, step: CallStep) -> int:
    """Return the order number of a step of an attempt, higher for later ones."""
    return attempt * len(_PHASES) + _PHASES[step]


def call_key(attempt: int, step: CallStep, kind: str) -> str:
    return f"{attempt}/{step}/{kind}"


def to_call(
    kinds: Sequence[RedirectKind], calls: Mapping[str, Call], attempt: int, step: CallStep
) -> dict[RedirectKind, Call | None]:
    """Return the redirectors that have not confirmed a step, in their order, with their calls."""
    known = {kind: calls.get(call_key(attempt, step, kind)) for kind in kinds if kind != "routing"}
    ended = {"done", "superseded"}
    return {kind: call for kind, call in known.items() if call is None or call.state not in ended}


def missing_confirmations(
    kinds: Sequence[RedirectKind], calls: Mapping[str, Call], attempt: int, step: CallStep
) -> Iterator[str]:
    for kind, known in to_call(kinds, calls, attempt, step).items():
        why = "it was not called yet" if known is None else known.said
        yield f"redirector {kind} has not confirmed {step}: {why}"
