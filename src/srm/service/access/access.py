"""Authorization of every route by role, and limits on expensive concurrent requests."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from anyio import CapacityLimiter
from fastapi import Depends, HTTPException, Request

from srm.config.model import AccessSettings
from srm.errors import UnavailableError
from srm.logs import printable

Role = Literal["reader", "operator"]
ANONYMOUS: Final = "anonymous"
LONGEST_NAME: Final = 200


def _as_one_line(record: logging.LogRecord) -> bool:
    record.msg, record.args = printable(record.getMessage()), ()
    return True


audit = logging.getLogger("srm.service.audit")
"""Log of actions and refusals: one line each, with the user and without secrets."""
audit.addFilter(_as_one_line)


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user; ``name`` is for logs and for the records of actions."""

    name: str
    roles: frozenset[Role] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", printable(self.name)[:LONGEST_NAME])


Authenticator = Callable[..., Any]
"""Identifies users: the only difference between a standalone service and Airflow.

A dependency of FastAPI: a function, plain or async, whose parameters FastAPI fills like those of a
route. It returns a :class:`User` with the roles ``reader`` (may read) and ``operator`` (may also
act), or raises HTTPException: 401 with the header ``WWW-Authenticate`` for an unknown user, 503 if
the user cannot be determined now. Roles are checked later. It is called for every request except
those of /health and of static files.
"""


def anonymous() -> User:
    """Let any client read but not act, for a service that only this machine can reach."""
    return User(ANONYMOUS, frozenset({"reader"}))


def roles(settings: AccessSettings, names: Collection[str]) -> frozenset[Role]:
    """Return the roles of a user by its own name and its groups; an operator is also a reader.

    Without ``service.readers`` every authenticated user may read, without operators none may act.
    """
    found: set[Role] = set()
    if not settings.readers or not {*settings.readers}.isdisjoint(names):
        found.add("reader")
    if not {*settings.operators}.isdisjoint(names):
        found |= {"reader", "operator"}
    return frozenset(found)


def user_of(request: Request) -> User:
    found: User = request.state.user
    return found


def guard(identify: Authenticator, role: Role) -> Callable[..., User]:
    def check(request: Request, user: User = Depends(identify)) -> User:  # noqa: B008 -- as FastAPI requires
        if role not in user.roles:
            audit.warning(
                "%s %s by %s from %s refused: role %s is missing",
                request.method,
                request.url.path,
                user.name,
                address(request),
                role,
            )
            raise HTTPException(403, f"{user.name} lacks the role {role}: {_HOW[role]}")
        request.state.user = user
        return user

    return check


_HOW: Final[Mapping[Role, str]] = {
    "reader": "service.readers lists the users that may read",
    "operator": "service.operators lists the users that may act; by default none",
}


def same_origin(request: Request) -> None:
    """Refuse (403) an action that a foreign page makes a browser request.

    Browsers add passwords, certificates and cookies to any request, so these do not identify the
    page. The header Sec-Fetch-Site does, or else Origin. Only browsers send them.
    """
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin")
    if site is not None:
        allowed = site in {"same-origin", "none"}
    else:
        allowed = origin is None or urlsplit(origin).netloc == request.headers.get("Host")
    if not allowed:
        audit.warning("%s from %s refused: page of %s", request.url.path, address(request), origin)
        raise HTTPException(403, f"a page of {origin or 'another site'} may not act here")


async def read_limited(parts: AsyncIterable[bytes], most_bytes: int) -> bytes | None:
    """Read a body; None if it is longer."""
    body = bytearray()
    async for part in parts:
        body += part
        if len(body) > most_bytes:
            return None
    return bytes(body)


def address(request: Request) -> str:
    return request.client.host if request.client is not None else "nowhere"


AT_ONCE: Final = 4
WAITING: Final = 16
ADDRESSES: Final = 64


class ConcurrencyLimit:
    """Runs a few requests at a time, lets a few more wait and refuses the rest."""

    def __init__(
        self,
        at_once: int = AT_ONCE,
        waiting: int = WAITING,
        refusal: str = "too many requests to the clusters are running; retry",
    ) -> None:
        self._limit = CapacityLimiter(at_once)
        self._waiting = waiting
        self._refusal = refusal

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn and hold it; UnavailableError: too many requests wait already."""
        if self._limit.statistics().tasks_waiting >= self._waiting:
            raise UnavailableError(self._refusal)
        async with self._limit:
            yield


class FairTurns:
    """Runs one request at a time, alternating between addresses, each with a queue of its own."""

    def __init__(self) -> None:
        self._all = ConcurrencyLimit(1, ADDRESSES, "too many other logins are running; retry")
        self._own: WeakValueDictionary[str, ConcurrencyLimit] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, where: str) -> AsyncIterator[None]:
        refusal = f"too many other logins from {where} are running; retry"
        # It lives as long as a request waits in it.
        own = self._own.setdefault(where, ConcurrencyLimit(1, WAITING, refusal))
        async with own.turn(), self._all.turn():
            yield
