"""Lists of everything that is watched anywhere, and which targets are missing in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from fastapi import FastAPI, Request, Response

from srm.domain.documents import encode
from srm.errors import ElsewhereError, NotFoundError, SrmError
from srm.service.answering import PROBLEM, answer, page, problem_of
from srm.service.documents import (
    ClusterInfo,
    DrillRow,
    FlowSummary,
    MetricSeries,
    MoveRow,
    Page,
    Problem,
    RemoteTopic,
)
from srm.service.federation import Federation, decoded, is_internal, path_of
from srm.service.remote import Reply
from srm.service.views import Views

MISSING_HEADER: Final = "SRM-Missing"
"""Names the targets that are missing in an answer whose shape has no room for it."""
_API: Final = ("/v2/", "/remote-topics", "/cluster-metrics/", "/topic-metrics/")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Listed(Generic[_T]):
    """How rows of several services become one list.

    ``order`` is that of every part of it. Of rows with the same ``identity`` the one with the
    highest ``rank`` stays: several targets may know of the same.
    """

    of: type[_T]
    order: Callable[[_T], Any]
    identity: Callable[[_T], object]
    rank: Callable[[_T], Any] = lambda _: 0


FLOWS: Final = Listed(FlowSummary, lambda r: (r.source, r.target), lambda r: r.flow)
REMOTE_TOPICS: Final = Listed(
    RemoteTopic,
    lambda r: (r.source, r.target, r.topic),
    lambda r: (r.source, r.target, r.topic),
)
MOVES: Final = Listed(
    MoveRow,
    lambda r: (-r.created_ms, r.move_id),
    lambda r: r.move_id,
    lambda r: (r.ended, r.ok is not None),
)
DRILLS: Final = Listed(DrillRow, lambda r: (-r.time_ms, r.drill_id), lambda r: r.drill_id)


def federation_of(request: Request) -> Federation | None:
    """Return what asks other services; None where nobody else is to be asked."""
    found: Federation | None = request.app.state.federation
    return None if is_internal(request) else found


async def everywhere(
    request: Request, rows: Iterable[_T], listed: Listed[_T], offset: int, limit: int
) -> Page[_T]:
    """Return a part of a list of all services: own rows, and those of others as far as needed."""
    own = tuple(rows)
    federation = federation_of(request)
    if federation is None:
        return page(own, offset, limit)
    pages, missing = await federation.pages(request, listed.of, offset + limit)
    total = len(own) + sum(part.total for part in pages.values())
    known: dict[object, _T] = {}
    count = 0
    for row in (*own, *(row for part in pages.values() for row in part.items)):
        count += 1
        before = known.setdefault(listed.identity(row), row)
        if listed.rank(row) > listed.rank(before):
            known[listed.identity(row)] = row
    merged = sorted(known.values(), key=listed.order)
    items = tuple(merged[offset : offset + limit])
    return Page(items, total - count + len(merged), offset, missing)


async def all_series(request: Request, own: Iterable[MetricSeries]) -> Response:
    """Answer with series of all services; a header names the targets that are missing."""
    federation = federation_of(request)
    found = [*own]
    missing: dict[str, str] = {}
    if federation is not None:
        others, missing = await federation.documents(request, list[MetricSeries])
        found += [each for series in others.values() for each in series]
    answered = answer(request, found, list[MetricSeries])
    if missing:
        answered.headers[MISSING_HEADER] = ", ".join(missing)
    return answered


async def whole_cluster(request: Request, views: Views, cluster_id: str) -> ClusterInfo:
    """Describe a cluster with the flows out of it, too, which other services watch.

    Raises:
        ElsewhereError: no service that has answered knows it.
        UnavailableError: one that may know it does not answer.
    """
    federation = federation_of(request)
    if federation is None:
        return views.cluster(cluster_id)
    try:
        info = views.cluster(cluster_id)
    except ElsewhereError:
        reply = await federation.forward(request, "")
        info = decoded(ClusterInfo, reply)
    pages, missing = await federation.pages(request, FlowSummary, 1000, "/v2/flows")
    flows = [*views.flows(), *(row for part in pages.values() for row in part.items)]
    touching = {row.flow: row for row in flows if info.alias in {row.source, row.target}}
    measured = {name: row.measured for name, row in touching.items() if row.measured is not None}
    return replace(
        info,
        incoming=tuple(sorted(n for n, row in touching.items() if row.target == info.alias)),
        outgoing=tuple(sorted(n for n, row in touching.items() if row.source == info.alias)),
        measured=measured,
        missing=missing,
    )


def answer_from_elsewhere(app: FastAPI) -> None:
    """Have what this service does not watch answered by one that does."""

    async def of_elsewhere(request: Request, error: Exception) -> Response:
        if not isinstance(error, ElsewhereError):
            raise error
        federation = federation_of(request)
        if not error.target and is_internal(request):  # who asks was right to ask here
            return problem_of(request, NotFoundError(str(error)))
        if federation is None or request.method != "GET" or not path_of(request).startswith(_API):
            return problem_of(request, error)
        if error.target and error.target not in federation.targets:
            return problem_of(request, error)
        try:
            return _passed_on(request, await federation.forward(request, error.target))
        except SrmError as failed:
            return problem_of(request, failed)

    app.add_exception_handler(ElsewhereError, of_elsewhere)


def _passed_on(request: Request, reply: Reply) -> Response:
    body = reply.body
    if reply.media_type == PROBLEM:
        told = decoded(Problem, reply)
        body = encode(replace(told, instance=request.url.path))
    headers = {**reply.headers, "Cache-Control": "no-cache"}
    return Response(body, reply.status, headers, reply.media_type or None)
