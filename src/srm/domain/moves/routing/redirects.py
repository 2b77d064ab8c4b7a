"""Redirectors of a move: their kinds, their orders to clients, and the confirmations.

``routing`` writes records that clients follow; it is part of each step's transaction. The others
are *called* when the step is durable: at least once, each with an idempotency key. ``manual`` only
shows tasks to operators; the brokers show when these are done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BeforeValidator

from srm.domain.text.documents import Document, adapter
from srm.errors import UsageError

RedirectKind = Literal["routing", "webhook", "command", "manual"]
CallStep = Literal["hold", "release", "go"]
CallState = Literal["calling", "done", "failed", "superseded"]
FenceKind = Literal["none", "acl"]

KINDS: Final[tuple[RedirectKind, ...]] = get_args(RedirectKind)
ROUTING_ALONE: Final[tuple[RedirectKind, ...]] = ("routing",)
ORDER_VERSION: Final = 1

_PHASES: Final[Mapping[CallStep, int]] = {"hold": 0, "release": 1, "go": 2}
_IN_FORCE: Final[Mapping[str, CallStep]] = {
    **dict.fromkeys(("holding", "held", "applied", "going"), "hold"),
    "released": "release",
    **dict.fromkeys(("gone", "verified", "reported"), "go"),
}


def in_order(names: Iterable[str]) -> tuple[RedirectKind, ...]:
    """Check a list of redirectors; ``routing`` is always the first, named or not."""
    given = tuple(names)
    known: tuple[RedirectKind, ...] = tuple(
        kind for name in given for kind in KINDS if kind == name
    )
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

    Until its answer is known it is ``calling``: a killed process has made it, or not. A later move
    of its clients leaves it ``superseded``, and it is not made any more.
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
    ``mode``: in unplanned the source is abandoned, and the only step is *go*.
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


def order_schema() -> dict[str, Any]:
    """Return the JSON schema of an order."""
    return adapter(RedirectOrder).json_schema(mode="serialization")


def order_number(attempt: int, step: CallStep) -> int:
    """Return the order number of a step of an attempt, higher for later ones."""
    return attempt * len(_PHASES) + _PHASES[step]


def call_key(attempt: int, step: CallStep, kind: str) -> str:
    """Return the key under which a move stores a call."""
    return f"{attempt}/{step}/{kind}"


def step_in_force(move_step: str) -> CallStep | None:
    """Return the last order to clients of a move at this step, None before the first hold."""
    return _IN_FORCE.get(move_step)


def to_call(
    kinds: Sequence[RedirectKind], calls: Mapping[str, Call], attempt: int, step: CallStep
) -> tuple[RedirectKind, ...]:
    """Return the redirectors that have not confirmed a step, in their order."""
    return tuple(
        kind
        for kind in kinds
        if kind != "routing"
        and (
            (known := calls.get(call_key(attempt, step, kind))) is None
            or known.state in {"calling", "failed"}
        )
    )


def missing_confirmations(
    kinds: Sequence[RedirectKind], calls: Mapping[str, Call], attempt: int, step: CallStep
) -> Iterator[str]:
    """Yield a reason for each redirector that has not confirmed a step."""
    for kind in to_call(kinds, calls, attempt, step):
        known = calls.get(call_key(attempt, step, kind))
        why = "it was not called yet" if known is None else known.said
        yield f"redirector {kind} has not confirmed {step}: {why}"
