"""Who may see and who may act: what guards every route, whoever it is that knows the users."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from fastapi import Depends, HTTPException, Request

from srm.config.service import AccessSettings

Role = Literal["reader", "operator"]
ANONYMOUS: Final = "anonymous"
LONGEST_NAME: Final = 200


def one_line(text: str) -> str:
    """Return a text of somebody else's as a part of one line of a log, whatever it has in it."""
    return "".join(each if each.isprintable() else "?" for each in text)


def _as_one_line(record: logging.LogRecord) -> bool:
    record.msg, record.args = one_line(record.getMessage()), ()
    return True


audit = logging.getLogger("srm.service.audit")
"""What was done, and what was refused, by whom; a line each, and never with a secret."""
audit.addFilter(_as_one_line)


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who may come in; ``name`` is for logs and for the records of what was done."""

    name: str
    roles: frozenset[Role] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", one_line(self.name[:LONGEST_NAME]))


@dataclass(frozen=True)
class Authenticator:
    """Says who somebody is: the one thing that differs between standalone and Airflow.

    ``identify`` is a dependency of FastAPI: a function, plain or async, whose parameters FastAPI
    fills as those of a route (``request: Request``, other dependencies). It returns a
    :class:`User` with the roles ``reader`` (may see) and ``operator`` (may act too), or raises
    HTTPException: 401 with the header ``WWW-Authenticate`` for somebody who is not known, 503 where
    that cannot be found out now. Roles are checked here, so it need not raise 403. It is asked
    for every request but those of /health and of static files.

    An Airflow plugin gives the user that Airflow knows::

        def identify(user: GetUserDep) -> User:  # in a module without the future import
            may_act = get_auth_manager().is_authorized_dag(method="POST", user=user, ...)
            return User(user.get_name(), frozenset({"reader", *(["operator"] if may_act else [])}))

        create_app(views, Access(identify))
    """

    identify: Callable[..., Any]


def _anonymous() -> User:
    return User(ANONYMOUS, frozenset({"reader"}))


OPEN: Final = Authenticator(_anonymous)
"""Lets everybody see, and act by no means: for a service that only this machine reaches."""


def roles(settings: AccessSettings, names: Collection[str]) -> frozenset[Role]:
    """Return the roles of somebody with these names: of the user and of groups.

    Whoever may act may see. Without ``service.readers`` everybody that is known may see; without
    ``service.operators`` nobody may act.
    """
    found: set[Role] = set()
    if not settings.readers or not {*settings.readers}.isdisjoint(names):
        found.add("reader")
    if not {*settings.operators}.isdisjoint(names):
        found |= {"reader", "operator"}
    return frozenset(found)


def user_of(request: Request) -> User:
    """Return who makes a request, behind a guard."""
    found: User = request.state.user
    return found


def guard(identify: Callable[..., Any], role: Role) -> Callable[..., User]:
    """Return a dependency that lets only users with a role pass; ``identify`` is that of Access."""

    def check(request: Request, user: User = Depends(identify)) -> User:  # noqa: B008 -- as FastAPI wants it
        if role not in user.roles:
            audit.warning(
                "%s %s by %s from %s refused: no %s",
                request.method,
                request.url.path,
                user.name,
                address(request),
                role,
            )
            raise HTTPException(403, f"{user.name} is no {role} here: {_HOW[role]}")
        request.state.user = user
        return user

    return check


_HOW: Final[Mapping[Role, str]] = {
    "reader": "service.readers names who may see",
    "operator": "service.operators names who may act; without it nobody may",
}


def same_origin(request: Request) -> None:
    """Refuse an action that a page of somebody else makes a browser ask for.

    Browsers send passwords, certificates and cookies along by themselves, so these say nothing of
    who wrote the page. The header Sec-Fetch-Site says it, and where a browser does not send that,
    Origin does; what is no browser sends neither.

    Raises:
        HTTPException: 403, a page of another origin asks.
    """
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin")
    if site is not None:
        allowed = site in {"same-origin", "none"}
    else:
        allowed = origin is None or urlsplit(origin).netloc == request.headers.get("Host")
    if not allowed:
        audit.warning("%s from %s refused: asked by %s", request.url.path, address(request), origin)
        raise HTTPException(403, f"a page of {origin or 'another site'} may not act here")


def address(request: Request) -> str:
    """Return where a request comes from."""
    return request.client.host if request.client is not None else "nowhere"
