"""Federation: one service answers for all and queries the others about their targets.

Any client with write access to a cluster can announce a service for it. Rows of other clusters are
therefore ignored, and no answer of one service may suppress the answers of others.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

from anyio.to_thread import run_sync
from fastapi import Request
from pydantic import ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from srm.config.model import Config
from srm.domain.names.topics import Flow
from srm.domain.text.documents import adapter, read_json
from srm.errors import ElsewhereError, IntegrityError, UnavailableError, UsageError
from srm.service.federation import peers
from srm.service.views import documents
from srm.service.views.responses import ELSEWHERE, INTERNAL_MARK

UNKNOWN_FORMAT: Final = "its service answers in an unknown format: check its version"
_TEXT_LENGTH: Final = 200
"""Characters of an unreadable row that an error message quotes."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Listed(Generic[_T]):
    """A type of row of several services, and the rules that merge its rows into one list.

    ``flow``: returns the flow of a row; raises UsageError if it names none, or two.
    ``order``: the sort key of rows.
    ``identity``: equal for duplicates. Own rows and rows from their ``home`` target take
    precedence; among those, or else among all, the highest ``rank`` wins.
    ``reporters``: returns the targets whose services may report a flow.
    ``whole``: the path of a list that is always read completely, as targets share its rows.
    """

    of: type[_T]
    flow: Callable[[_T], Flow]
    order: Callable[[_T], Any]
    identity: Callable[[_T], object]
    reporters: Callable[[Flow], tuple[str, ...]] = lambda flow: (flow.target,)
    rank: Callable[[_T], Any] = lambda _: 0
    home: Callable[[_T], str] = lambda _: ""
    whole: str = ""

    def page(self, body: bytes, offset: int, limit: int) -> documents.Page[_T]:
        found: documents.Page[_T] = read_answer(documents.Page[self.of], body)  # type: ignore[name-defined]
        count = len(found.items)
        if count > limit:
            raise UnavailableError(f"its service answers with {count} rows, maximum {limit}")
        if count and found.total < offset + count:
            raise UnavailableError(f"its service has row {offset + count} of {found.total}")
        return found

    def rows(self, body: bytes) -> tuple[_T, ...]:
        return tuple(read_answer(list[self.of], body))  # type: ignore[name-defined]

    def about(self, target: str, rows: Iterable[_T]) -> tuple[_T, ...]:
        """Return the rows that the services of a target may report."""
        try:
            return tuple(row for row in rows if target in self.reporters(self.flow(row)))
        except UsageError as error:
            text = str(error)[:_TEXT_LENGTH]
            raise UnavailableError(f"its service answers with an invalid row: {text}") from None


def cluster_of(body: bytes) -> tuple[str, ...]:
    return (read_answer(documents.ClusterInfo, body).alias,)


def ends_of(body: bytes) -> tuple[Any, ...]:
    """Return the two clusters of a move from its description or its report, in any version."""
    found = read_answer(dict[str, Any], body)
    move = found.get("row", found)
    return (move.get("source"), move.get("target")) if isinstance(move, dict) else ()


def read_answer(of: Any, body: bytes) -> Any:
    try:
        return adapter(of).validate_python(read_json("answer", body))
    except (ValidationError, IntegrityError):
        raise UnavailableError(UNKNOWN_FORMAT) from None


def _flow_of(row: documents.FlowSummary) -> Flow:
    flow = _between(row)
    if row.flow != str(flow):
        raise UsageError(f"{row.flow!r} is not {flow}")
    return flow


def _between(
    row: documents.FlowSummary | documents.RemoteTopic | documents.MoveRow | documents.MetricSeries,
) -> Flow:
    return Flow.parse(f"{row.source}->{row.target}")


def _names(row: documents.RemoteTopic | documents.MetricSeries) -> tuple[str, str, str]:
    return row.source, row.target, row.topic


FLOWS: Final = Listed(
    documents.FlowSummary, _flow_of, order=lambda r: (r.source, r.target), identity=lambda r: r.flow
)
REMOTE_TOPICS: Final = Listed(documents.RemoteTopic, _between, order=_names, identity=_names)
MOVES: Final = Listed(
    documents.MoveRow,
    _between,
    order=lambda r: (-r.created_ms, r.move_id),
    identity=lambda r: r.move_id,
    reporters=lambda flow: (flow.source, flow.target),
    rank=lambda r: (r.ended, r.ok is not None),
    home=lambda r: r.target,  # the decision of a move is there
    whole="/v2/moves",
)
DRILLS: Final = Listed(
    documents.DrillRow,
    lambda row: Flow.parse(row.flow),
    order=lambda r: (-r.time_ms, r.drill_id),
    identity=lambda r: (r.flow, r.drill_id),
)
SERIES: Final = Listed(documents.MetricSeries, _between, order=_names, identity=_names)


INTERNAL: Final = "/internal"
"""Prefix of the routes between services: their answers cover only the targets watched here."""
_MOST_ROWS: Final = 1000
_LIST_BYTES: Final = 16 << 20
"""Bytes of all parts of the list of one target; reading them delays other requests."""


async def first_answer(requests: Sequence[Callable[[], Awaitable[_T]]], patience_s: float) -> _T:
    """Return the first answer of several services; UnavailableError: all requests failed.

    The next service is queried when one fails or after ``patience_s`` seconds. Earlier ones may
    still answer first. ``requests`` have time limits of their own; unneeded ones are cancelled.
    """
    failures: list[str] = []
    pending: set[asyncio.Future[_T]] = set()
    try:
        for number, request in enumerate(requests, 1):
            pending.add(asyncio.ensure_future(request()))
            is_last = number == len(requests)
            while pending:
                done, pending = await asyncio.wait(
                    pending,
                    timeout=None if is_last else patience_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for one in done:
                    try:
                        return one.result()
                    except UnavailableError as error:
                        failures.append(str(error))
                if not is_last:
                    break
    finally:
        for one in pending:
            one.cancel()
    raise UnavailableError("; ".join(failures))


def path_of(request: Request) -> str:
    """Return the path of a request without the root path, so that it is valid for every service."""
    path, root = str(request.scope["path"]), str(request.scope.get("root_path", "")).rstrip("/")
    return path.removeprefix(root) if path.startswith(f"{root}/") else path


class InternalPaths:
    """Middleware that also serves every route under ``/internal`` and marks those requests."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            request = Request(scope)
            path = path_of(request)
            if path.startswith(f"{INTERNAL}/") and request.method == "GET":
                root = str(scope["path"]).removesuffix(path)
                state = {**scope.get("state", {}), INTERNAL_MARK: True}
                scope = {**scope, "path": root + path.removeprefix(INTERNAL), "state": state}
        await self._app(scope, receive, send)


@dataclass(eq=False)
class Federation:
    """Client for all ``expected`` targets that this service does not watch ``here``."""

    here: tuple[str, ...]
    expected: tuple[str, ...]
    neighbours: peers.Neighbours
    remote: peers.Remote
    limit_s: float
    _answered: dict[str, str] = field(default_factory=dict)

    @property
    def targets(self) -> tuple[str, ...]:
        found = dict.fromkeys((*self.expected, *self.neighbours.watched_targets()))
        return tuple(sorted(target for target in found if target not in self.here))

    def home(self, target: str) -> str:
        """Return the address of a service that watches a target; empty if none is known."""
        services = self.neighbours.watchers(target)
        return next((one.url for one in services if not self.remote.distrust(one)), "")

    async def fetch(
        self, target: str, path: str, headers: Mapping[str, str], most_bytes: int = peers.MOST_BYTES
    ) -> peers.Reply:
        """Request a path, query included, from the services that watch a target.

        The first answer of at most ``most_bytes`` counts. The service that answered last is
        queried first, so that a service that hangs delays only one request.
        """
        services = list(self.neighbours.watchers(target))
        if not services:
            unknown = self.neighbours.error(target) or "see service.advertise"
            raise UnavailableError(f"no service that watches {target} is announced: {unknown}")
        services.sort(key=lambda service: service.url != self._answered.get(target))

        async def get(service: peers.ServiceAnnouncement) -> peers.Reply:
            reply = await self.remote.get(service, target, path, headers, most_bytes)
            kind = _problem(reply).get("type") if reply.status == 404 else None
            if reply.status < 500 and kind != ELSEWHERE:
                self._answered[target] = service.url
                return reply
            raise UnavailableError(f"{service.url}: {_detail(reply)}")

        requests = [partial(get, service) for service in services]
        return await first_answer(requests, self.limit_s / len(services))

    async def forward(self, request: Request, target: str) -> peers.Reply:
        return await self.fetch(target, _path(request), request.headers)

    async def first_match(
        self, request: Request, about: Callable[[bytes], Collection[str]]
    ) -> peers.Reply:
        """Forward a request to all other services and return the first match.

        ``about``: returns the targets of a body; only their services may answer.

        ElsewhereError: all others answered, none has it. UnavailableError: one does not answer.
        """
        path, headers = _path(request), _unconditional(request)

        async def read(target: str) -> peers.Reply | None:
            reply = await self.fetch(target, path, headers)
            is_known = reply.status == 200 and target in await run_sync(about, reply.body)
            return reply if is_known else None

        found: dict[str, peers.Reply | None]
        found, missing = await self._each(read)
        for reply in found.values():
            if reply is not None:
                return reply
        if missing:
            why = "; ".join(f"{target}: {text}" for target, text in missing.items())
            raise UnavailableError(f"{path}: {why}")
        raise ElsewhereError(f"{path}: unknown here and to {', '.join(found) or 'others'}")

    async def pages(
        self, request: Request, listed: Listed[_T], count: int, path: str = ""
    ) -> tuple[dict[str, documents.Page[_T]], dict[str, str]]:
        """Request the first ``count`` rows per target from all other services.

        Rows of the type ``listed`` that a service may not report are dropped. ``path`` is that of
        the list, by default that of ``request``. Returns one page per target, and why pages are
        missing.
        """
        query = "" if path else _query(request)
        where = path or quote(path_of(request))

        async def read(target: str) -> documents.Page[_T]:
            rows: tuple[_T, ...] = ()
            seen, left = 0, _LIST_BYTES
            while True:
                limit = min(_MOST_ROWS, max(1, count - seen))
                address = f"{where}?{query}offset={seen}&limit={limit}"
                body = await self._body(target, address, request, left)
                found = await run_sync(listed.page, body, seen, limit)
                rows += listed.about(target, found.items)
                seen += len(found.items)
                left -= len(body)
                is_last = len(found.items) < limit
                if is_last or seen >= min(count, found.total):
                    total = seen if is_last else found.total
                    return documents.Page(rows, total - seen + len(rows), 0, {})

        return await self._each(read)

    async def lists(
        self, request: Request, listed: Listed[_T]
    ) -> tuple[dict[str, tuple[_T, ...]], dict[str, str]]:
        """Forward a request for whole lists to all other services; returns as :meth:`pages`."""

        async def read(target: str) -> tuple[_T, ...]:
            address = f"{quote(path_of(request))}?{_query(request)}"
            body = await self._body(target, address, request, _LIST_BYTES)
            return listed.about(target, await run_sync(listed.rows, body))

        return await self._each(read)

    async def _body(self, target: str, path: str, request: Request, most_bytes: int) -> bytes:
        reply = await self.fetch(target, path, _unconditional(request), most_bytes)
        if reply.status != 200:
            raise UnavailableError(f"{reply.status}: {_detail(reply)}")
        return reply.body

    async def _each(self, read: Any) -> tuple[dict[str, Any], dict[str, str]]:

        async def in_time(target: str) -> Any:
            # The last service is queried within one limit and has another one to answer.
            limit_s = 2 * self.limit_s
            try:
                async with asyncio.timeout(limit_s):
                    return await read(target)
            except TimeoutError:
                raise UnavailableError(f"no complete answer within {limit_s:g} s") from None

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
    """Return the headers to forward without If-None-Match, which refers to the merged answer."""
    return {n: request.headers[n] for n in ("Authorization",) if n in request.headers}


def _query(request: Request) -> str:
    kept = [
        f"{quote(name)}={quote(value, safe='')}&"
        for name, value in request.query_params.multi_items()
        if name not in {"offset", "limit"}
    ]
    return "".join(kept)


def _problem(reply: peers.Reply) -> Mapping[str, Any]:
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _detail(reply: peers.Reply) -> str:
    return str(_problem(reply).get("detail", reply.status))


@dataclass(frozen=True)
class Joining:
    """Announcer, client and federation of this service; None for each that is off."""

    neighbours: peers.Neighbours | None = None
    remote: peers.Remote | None = None
    federation: Federation | None = None

    def start(self) -> None:
        if self.neighbours is not None:
            self.neighbours.start()

    async def close(self) -> None:
        if self.remote is not None:
            await self.remote.close()
        if self.neighbours is not None:
            await run_sync(self.neighbours.close)


def join(config: Config, watched: tuple[str, ...], opener: peers.Opener | None = None) -> Joining:
    """Build the parts that ``service.advertise`` and ``service.remote.querying.enabled`` enable."""
    settings = config.service
    if not settings.remote.advertise and not settings.remote.enabled:
        return Joining()
    instance = uuid.uuid4().hex
    own = peers.own_announcement(settings, watched, instance) if settings.remote.advertise else None
    neighbours = peers.Neighbours(config, own, instance, opener)
    if not settings.remote.enabled:
        return Joining(neighbours)
    remote = peers.Remote(settings)
    expected = tuple(sorted({flow.target for flow in config.flows}))
    limit_s = settings.remote.timeout.total_seconds()
    federation = Federation(watched, expected, neighbours, remote, limit_s)
    return Joining(neighbours, remote, federation)
