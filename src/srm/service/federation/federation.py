"""One service answers for all: what it does not watch itself, it asks those that do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote

from anyio.to_thread import run_sync
from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from srm.errors import ElsewhereError, UnavailableError
from srm.service.federation.announcements import ServiceAnnouncement
from srm.service.federation.hedged_request import first_answer
from srm.service.federation.remote import MOST_BYTES, Reply
from srm.service.federation.remote_rows import Told
from srm.service.views.documents import Page

INTERNAL: Final = "/internal"
"""Before the routes that services ask each other for: those answer of what is watched here only."""
_MARK: Final = "internal"
_MOST: Final = 1000
_MOST_BYTES: Final = 16 << 20
"""Of all parts of a list of one target together; it is read while others wait for theirs."""
_T = TypeVar("_T")


class Watchers(Protocol):
    """Who is announced to watch what; :class:`srm.service.federation.peers.Neighbours` is it."""

    def watchers(self, target: str) -> tuple[ServiceAnnouncement, ...]:
        """Return the services that watch a target, the one heard of last first."""
        ...

    def watched_targets(self) -> tuple[str, ...]:
        """Return the targets that some other service watches."""
        ...

    def error(self, target: str) -> str:
        """Return why it is not known who watches a target, if that is so."""
        ...


class Asks(Protocol):
    """Asks one service; :class:`srm.service.federation.remote.Remote` is it."""

    async def get(
        self,
        service: ServiceAnnouncement,
        target: str,
        path: str,
        headers: Mapping[str, str],
        most_bytes: int,
    ) -> Reply:
        """Ask for a path of a target; UnavailableError where there is no answer."""
        ...

    def require_trusted(self, service: ServiceAnnouncement) -> None:
        """Raise UnavailableError where a service may not be asked."""
        ...


def path_of(request: Request) -> str:
    """Return the path of a request as every service knows it: without what stands before routes."""
    path, root = str(request.scope["path"]), str(request.scope.get("root_path", "")).rstrip("/")
    return path.removeprefix(root) if path.startswith(f"{root}/") else path


def is_internal(request: Request) -> bool:
    """Whether another service asks: then nobody else is asked, or it would go round."""
    return getattr(request.state, _MARK, False)


class InternalPaths:
    """Middleware that serves every route under ``/internal``, too, and marks who asks there."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http":
            request = Request(scope)
            path = path_of(request)
            if path.startswith(f"{INTERNAL}/") and request.method == "GET":
                root = str(scope["path"]).removesuffix(path)
                state = {**scope.get("state", {}), _MARK: True}
                scope = {**scope, "path": root + path.removeprefix(INTERNAL), "state": state}
        await self._app(scope, receive, send)


class Federation:
    """Asks the services that watch what this one does not.

    Args:
        here: targets that this service watches.
        expected: targets that somebody should watch.
        neighbours: who is announced.
        remote: asks one of them.
        limit_s: seconds that one of them has for an answer.
    """

    def __init__(
        self,
        here: Iterable[str],
        expected: Iterable[str],
        neighbours: Watchers,
        remote: Asks,
        limit_s: float,
    ) -> None:
        self._here = frozenset(here)
        self._expected = tuple(expected)
        self._neighbours = neighbours
        self._remote = remote
        self._limit_s = limit_s
        self._answered: dict[str, str] = {}

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that others watch, or should."""
        found = dict.fromkeys((*self._expected, *self._neighbours.watched_targets()))
        return tuple(sorted(target for target in found if target not in self._here))

    def home(self, target: str) -> str:
        """Return the address of a service that watches a target; empty where none is known."""
        for service in self._neighbours.watchers(target):
            try:
                self._remote.require_trusted(service)
            except UnavailableError:
                continue
            return service.url
        return ""

    async def ask(
        self,
        target: str,
        path: str,
        headers: Mapping[str, str],
        most_bytes: int = MOST_BYTES,
    ) -> Reply:
        """Ask for a path, query included, those that watch a target; the first answer counts.

        Who has answered last comes first, so that one that hangs costs nobody time twice. An
        answer has no more than ``most_bytes``.

        Raises:
            UnavailableError: none of them answers, or none is known.
        """
        services = list(self._neighbours.watchers(target))
        if not services:
            unknown = self._neighbours.error(target) or "see service.advertise"
            raise UnavailableError(f"no service that watches {target} is announced: {unknown}")
        services.sort(key=lambda service: service.url != self._answered.get(target))
        asks = [
            partial(self._get, service, target, path, headers, most_bytes) for service in services
        ]
        return await first_answer(asks, self._limit_s / len(services))

    async def _get(
        self,
        service: ServiceAnnouncement,
        target: str,
        path: str,
        headers: Mapping[str, str],
        most_bytes: int,
    ) -> Reply:
        reply = await self._remote.get(service, target, path, headers, most_bytes)
        if reply.status < 500 and not _is_elsewhere(reply):
            self._answered[target] = service.url
            return reply
        raise UnavailableError(f"{service.url}: {_detail(reply)}")

    async def forward(self, request: Request, target: str) -> Reply:
        """Ask who watches a target what this service was asked.

        Raises:
            UnavailableError: nobody answers.
        """
        return await self.ask(target, _path(request), request.headers)

    async def whoever_knows(
        self, request: Request, about: Callable[[bytes], Collection[str]]
    ) -> Reply:
        """Ask all others what this service was asked: whoever knows it.

        Args:
            request: as this service was asked.
            about: the targets that an answer is about; the service of another one does not count.

        Raises:
            ElsewhereError: all others have answered, and do not know it either.
            UnavailableError: somebody who might know it does not answer.
        """
        path, headers = _path(request), _unconditional(request)

        async def read(target: str) -> Reply | None:
            reply = await self.ask(target, path, headers)
            is_known = reply.status == 200 and target in await run_sync(about, reply.body)
            return reply if is_known else None

        found: dict[str, Reply | None]
        found, missing = await self._each(read)
        for reply in found.values():
            if reply is not None:
                return reply
        if missing:
            raise UnavailableError(f"{path}: {_missing_text(missing)}")
        raise ElsewhereError(f"{path}: not known here, nor to {', '.join(found) or 'others'}")

    async def pages(
        self, request: Request, told: Told[_T], count: int, path: str = ""
    ) -> tuple[dict[str, Page[_T]], dict[str, str]]:
        """Ask all others for the first rows of a list.

        Args:
            request: as this service was asked; its query but for ``offset`` and ``limit`` is
                passed on.
            told: what rows are asked for; those of a target count that its service may tell.
            count: so many rows of each.
            path: of the list, which is then asked for without a query; by default the one that
                was asked for.

        Returns:
            One page for each target, and why there is none of others.
        """
        query = "" if path else _query(request)
        where = path or quote(path_of(request))

        async def read(target: str) -> Page[_T]:
            rows: tuple[_T, ...] = ()
            seen, left = 0, _MOST_BYTES
            while True:
                limit = min(_MOST, max(1, count - seen))
                asked = f"{where}?{query}offset={seen}&limit={limit}"
                body = await self._body(target, asked, request, left)
                found = await run_sync(told.page, body, seen, limit)
                rows += told.about(target, found.items)
                seen += len(found.items)
                left -= len(body)
                is_last = len(found.items) < limit
                if is_last or seen >= min(count, found.total):
                    total = seen if is_last else found.total
                    return Page(rows, total - seen + len(rows), 0, {})

        return await self._each(read)

    async def lists(
        self, request: Request, told: Told[_T]
    ) -> tuple[dict[str, tuple[_T, ...]], dict[str, str]]:
        """Ask all others what this service was asked, for whole lists; as :meth:`pages`."""

        async def read(target: str) -> tuple[_T, ...]:
            asked = f"{quote(path_of(request))}?{_query(request)}"
            body = await self._body(target, asked, request, _MOST_BYTES)
            return told.about(target, await run_sync(told.rows, body))

        return await self._each(read)

    async def _body(self, target: str, path: str, request: Request, most_bytes: int) -> bytes:
        reply = await self.ask(target, path, _unconditional(request), most_bytes)
        if reply.status != 200:
            raise UnavailableError(f"{reply.status}: {_detail(reply)}")
        return reply.body

    async def _each(self, read: Any) -> tuple[dict[str, Any], dict[str, str]]:
        """Ask for all targets at the same time; nobody waits for the slowest but its own part."""

        async def in_time(target: str) -> Any:
            # However many are asked, the last one is within one limit, and has one to answer.
            limit_s = 2 * self._limit_s
            try:
                async with asyncio.timeout(limit_s):
                    return await read(target)
            except TimeoutError:
                raise UnavailableError(f"no whole answer within {limit_s:g} s") from None

        targets = self.targets
        answers = await asyncio.gather(*map(in_time, targets), return_exceptions=True)
        found: dict[str, Any] = {}
        missing: dict[str, str] = {}
        for target, answer in zip(targets, answers, strict=True):
            if isinstance(answer, UnavailableError):
                missing[target] = str(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found[target] = answer
        return found, missing


def _path(request: Request) -> str:
    query = f"?{request.url.query}" if request.url.query else ""
    return f"{quote(path_of(request))}{query}"


def _unconditional(request: Request) -> dict[str, str]:
    """Return the headers of a request without If-None-Match: that is of what is made of answers."""
    return {n: request.headers[n] for n in ("Authorization",) if n in request.headers}


def _query(request: Request) -> str:
    kept = [
        f"{quote(name)}={quote(value, safe='')}&"
        for name, value in request.query_params.multi_items()
        if name not in {"offset", "limit"}
    ]
    return "".join(kept)


def _problem(reply: Reply) -> Mapping[str, Any]:
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_elsewhere(reply: Reply) -> bool:
    return reply.status == 404 and _problem(reply).get("title") == ElsewhereError.__name__


def _detail(reply: Reply) -> str:
    return str(_problem(reply).get("detail", reply.status))


def _missing_text(missing: Mapping[str, str]) -> str:
    return "; ".join(f"{target}: {why}" for target, why in missing.items())
