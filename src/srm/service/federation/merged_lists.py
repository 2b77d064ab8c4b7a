"""Lists merged from all services, with the targets that are missing in them, and their pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, TypeVar

from fastapi import Depends, FastAPI, Request, Response

from srm.domain.text.documents import encode
from srm.errors import ElsewhereError, NotFoundError, SrmError, UsageError
from srm.service.federation.federation import (
    FLOWS,
    SERIES,
    Federation,
    Listed,
    cluster_of,
    ends_of,
    path_of,
    read_answer,
)
from srm.service.federation.peers import Reply
from srm.service.views.documents import ClusterInfo, FlowSummary, MetricSeries, Page, Problem
from srm.service.views.flow_rows import FlowLook, summary
from srm.service.views.responses import PROBLEM, Slice, ViewsDep, answer, is_internal, problem_of
from srm.service.views.views import Views

MISSING_HEADER: Final = "SRM-Missing"
"""Lists the missing targets of an answer whose body has no field for them."""
MOST_GATHERED: Final = 100_000
"""Limit of rows read from other services; rows after it need a filter by target or a search."""
_API: Final = ("/v2/", "/remote-topics", "/cluster-metrics/", "/topic-metrics/")
_T = TypeVar("_T")


def federation_of(request: Request) -> Federation | None:
    """Return the client of other services; None if only this service answers."""
    found: Federation | None = request.app.state.federation
    return None if is_internal(request) else found


async def everywhere(
    request: Request,
    rows: Iterable[_T],
    listed: Listed[_T],
    part: Slice,
    wanted: Callable[[_T], bool] = lambda _: True,
) -> Page[_T]:
    """Return a part of a list of all services: own rows, and as many rows of others as needed.

    ``wanted``: filter of rows; the forwarded query has to select the same rows, except for a
    ``whole`` list.
    """
    own = tuple(rows)
    federation = federation_of(request)
    if federation is None:
        return part.page(tuple(filter(wanted, own)))
    if part.offset > MOST_GATHERED:
        raise UsageError(
            f"offset: lists of several services have only the first {MOST_GATHERED:,} rows; "
            "name a target, or search"
        )
    count = MOST_GATHERED if listed.whole else part.offset + part.limit
    pages, missing = await federation.pages(request, listed, count, listed.whole)
    merged = [*filter(wanted, _merge(own, pages, listed))]
    items = part.page(merged).items
    unread = 0 if listed.whole else sum(p.total - len(p.items) for p in pages.values())
    return Page(items, len(merged) + unread, part.offset, missing)


def _merge(own: Iterable[_T], others: Mapping[str, Page[_T]], listed: Listed[_T]) -> list[_T]:
    candidates = [(True, row) for row in own]
    candidates += [
        (listed.home(row) == target, row) for target, part in others.items() for row in part.items
    ]
    known: dict[object, tuple[bool, _T]] = {}
    for knows, row in candidates:
        before = known.setdefault(listed.identity(row), (knows, row))
        if (knows, listed.rank(row)) > (before[0], listed.rank(before[1])):
            known[listed.identity(row)] = knows, row
    return sorted((row for _, row in known.values()), key=listed.order)


async def all_series(request: Request, own: Iterable[MetricSeries]) -> Response:
    """Answer with the series of all services; a header lists the missing targets."""
    federation = federation_of(request)
    found = [*own]
    missing: dict[str, str] = {}
    if federation is not None:
        others, missing = await federation.lists(request, SERIES)
        found += [each for series in others.values() for each in series]
    answered = answer(request, found)
    if missing:
        answered.headers[MISSING_HEADER] = ", ".join(missing)
    return answered


async def _flows_of_others(
    federation: Federation, request: Request
) -> tuple[list[FlowSummary], dict[str, str]]:
    pages, missing = await federation.pages(request, FLOWS, 1000, "/v2/flows")
    return [row for part in pages.values() for row in part.items], missing


async def whole_cluster(request: Request, views: Views, cluster_id: str) -> ClusterInfo:
    """Describe a cluster, including its outgoing flows, which other services watch."""
    federation, flows, missing = federation_of(request), [*views.flows()], dict[str, str]()
    try:
        info = views.cluster(cluster_id)
    except ElsewhereError:
        if federation is None:
            raise
        reply = await federation.first_match(request, cluster_of)
        info = read_answer(ClusterInfo, reply.body)
    if federation is not None:
        others, missing = await _flows_of_others(federation, request)
        flows += others
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
    async def of_elsewhere(request: Request, error: Exception) -> Response:
        if not isinstance(error, ElsewhereError):
            raise error
        federation = federation_of(request)
        if not error.target and is_internal(request):  # the caller chose the right service
            return problem_of(request, NotFoundError(str(error)))
        if federation is None or request.method != "GET" or not path_of(request).startswith(_API):
            return problem_of(request, error)
        if error.target and error.target not in federation.targets:
            return problem_of(request, error)
        try:
            if error.target:
                return _passed_on(request, await federation.forward(request, error.target))
            # Without a target it is a move, which any service may have.
            return _passed_on(request, await federation.first_match(request, ends_of))
        except SrmError as failed:
            return problem_of(request, failed)

    app.add_exception_handler(ElsewhereError, of_elsewhere)


def _passed_on(request: Request, reply: Reply) -> Response:
    body = reply.body
    if reply.media_type == PROBLEM:
        body = encode(replace(read_answer(Problem, reply.body), instance=request.url.path))
    headers = {**reply.headers, "Cache-Control": "no-cache"}
    return Response(body, reply.status, headers, reply.media_type or None)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Flows of other services, with homes by target; ``unwatched`` ones are not queried."""

    flows: tuple[FlowSummary, ...] = ()
    homes: Mapping[str, str] = field(default_factory=dict)
    unwatched: tuple[str, ...] = ()


async def elsewhere(request: Request, views: ViewsDep) -> Elsewhere:
    foreign = [
        flow for flow in sorted(views.config.flows) if flow.target not in views.watched_targets
    ]
    federation = federation_of(request)
    if federation is None:
        return Elsewhere(unwatched=tuple(map(str, foreign)))
    others, missing = await _flows_of_others(federation, request)
    found = {row.flow: row for row in others}
    for flow in foreign:
        if flow.target in missing:
            look = FlowLook(flow, views.config.flow(flow), error=missing[flow.target])
            found[str(flow)] = summary(look)
    return Elsewhere(tuple(found.values()), homes(request))


ElsewhereDep = Annotated[Elsewhere, Depends(elsewhere)]


def homes(request: Request) -> dict[str, str]:
    federation = federation_of(request)
    if federation is None:
        return {}
    return {target: url for target in federation.targets if (url := federation.home(target))}


HomesDep = Annotated[dict[str, str], Depends(homes)]


def home_of(request: Request, error: SrmError) -> str:
    federation = federation_of(request)
    if federation is None or not isinstance(error, ElsewhereError) or not error.target:
        return ""
    return federation.home(error.target)
