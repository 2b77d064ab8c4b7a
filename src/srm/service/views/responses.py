"""Requests and responses that routes share: parameters, JSON with an ETag, problem documents."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal, TypeVar

from fastapi import Depends, FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from srm.domain.names.topics import Flow
from srm.domain.text.documents import adapter, cause, encode
from srm.errors import ElsewhereError, SrmError, UsageError
from srm.logs import printable
from srm.service.views.documents import GroupDetail, Page, Problem
from srm.service.views.flow_rows import group_detail
from srm.service.views.views import Views
from srm.service.views.watching import CommittedOffsets

PROBLEM: Final = "application/problem+json"
MOST: Final = 1000
MOST_OF_A_NAME: Final = 32_767
"""Kafka's limit of a group name, a protocol string; a topic name has at most 249 characters."""
_T = TypeVar("_T")
_logger = logging.getLogger(__name__)

Offset = Annotated[int, Query(ge=0, description="Number of the first item.", examples=[0])]
Limit = Annotated[int, Query(ge=1, le=MOST, description="Maximum number of items in the answer.")]
Search = Annotated[
    str, Query(max_length=MOST_OF_A_NAME, description="Only names that contain this, in any case.")
]

PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    status: {
        "description": text,
        "content": {
            PROBLEM: {
                "schema": {"$ref": "#/components/schemas/Problem"},
                "example": {
                    "type": "about:blank",
                    "title": text,
                    "status": status,
                    "detail": detail,
                    "instance": "/v2/flows/P/B",
                },
            }
        },
    }
    for status, text, detail in (
        (400, "The request is invalid", "flow P->P: both ends are P"),
        (401, "Authentication is required", "give a name and a password"),
        (403, "The user lacks the role", "alice lacks the role operator"),
        (404, "Not found", "flow P->X is not watched here; flows: P->B, B->P"),
        (422, "The request cannot be understood", "limit: Input should be less than 1001"),
        (429, "Too many wrong passwords", "wait and try again"),
        (503, "A cluster does not answer; retry", "cluster B: timed out while describing topics"),
    )
}
"""OpenAPI error responses of any route; a model would be compiled for each response."""


def answer(request: Request, document: object, status: int = 200) -> Response:
    """Return a document as JSON of the route's type, or 304 if the client has it."""
    body = adapter(request.scope["route"].response_model or type(document)).dump_json(document)
    etag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    known = request.headers.get("If-None-Match", "")
    if status == 200 and request.method == "GET" and (known.strip() == "*" or etag in known):
        return Response(status_code=304, headers=headers)
    return Response(body, status, headers, "application/json")


@dataclass(frozen=True, slots=True)
class Slice:
    """The requested part of a list: the number of its first item, and the maximum of items."""

    offset: int
    limit: int

    def page(self, items: Sequence[_T]) -> Page[_T]:
        found = tuple(items[self.offset : self.offset + self.limit])
        return Page(found, len(items), self.offset, {})


async def _slice(offset: Offset = 0, limit: Limit = 100) -> Slice:
    return Slice(offset, limit)


SliceDep = Annotated[Slice, Depends(_slice)]


ELSEWHERE: Final = "urn:srm:elsewhere"
"""Type of the problem that another service may know what was requested."""


def containing(items: Iterable[_T], search: str, *names: Callable[[_T], str]) -> list[_T]:
    wanted = search.lower()
    return [one for one in items if any(wanted in name(one).lower() for name in names)]


def problem(request: Request, status: int, detail: str, kind: str = "about:blank") -> Response:
    title = HTTPStatus(status).phrase
    document = Problem(kind, title, status, detail, request.url.path)
    return Response(encode(document), status_code=status, media_type=PROBLEM)


def problem_of(request: Request, error: SrmError) -> Response:
    kind = ELSEWHERE if isinstance(error, ElsewhereError) else "about:blank"
    answered = problem(request, error.http_status, str(error), kind)
    if error.retriable:
        answered.headers["Retry-After"] = "5"
    return answered


def answer_errors(app: FastAPI) -> None:
    for kind in (SrmError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _answer_error)


def _answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, SrmError):
        return problem_of(request, error)
    if isinstance(error, HTTPException):
        answered = problem(request, error.status_code, str(error.detail))
        answered.headers.update(error.headers or {})
        return answered
    if isinstance(error, RequestValidationError):
        text = "; ".join(
            f"{'.'.join(map(str, one['loc'][1:] or one['loc']))}: {cause(one['msg'])}"
            for one in error.errors()
        )
        return problem(request, 422, text)
    path = printable(request.url.path)
    _logger.error("%s %s failed", request.method, path, exc_info=error)
    return problem(request, 500, f"{type(error).__name__}; see the log")


Metric = Literal[
    "byte-rate", "replication-latency-ms", "checkpoint-latency-ms", "replication-records-lag"
]
INTERNAL_MARK: Final = "internal"
TARGET_HEADER: Final = "X-SRM-Target"
"""Names the only target that another service may report in its answer."""
HOURS: Final = 2
"""Default time range, as in SRM."""


def is_internal(request: Request) -> bool:
    """Return whether another service sent the request; to avoid a loop, it is not forwarded."""
    return getattr(request.state, INTERNAL_MARK, False)


def views_of(request: Request) -> Views:
    """Return the application's views, only of one target if another service requests it."""
    found: Views = request.app.state.views
    target = request.headers.get(TARGET_HEADER) if is_internal(request) else None
    return found if target is None else found.only(target)


ViewsDep = Annotated[Views, Depends(views_of)]
Source = Annotated[str, Path(description="Alias of the source.", examples=["P"], max_length=249)]
Target = Annotated[str, Path(description="Alias of the target.", examples=["B"], max_length=249)]


def flow_of(source: Source, target: Target) -> Flow:
    return Flow.parse(f"{source}->{target}")


FlowDep = Annotated[Flow, Depends(flow_of)]


Group = Annotated[str, Path(description="Name of a consumer group.", examples=["billing"])]


async def _detail(
    request: Request, views: ViewsDep, flow: FlowDep, group: Group
) -> GroupDetail | None:
    """Return a group with its offsets on both sides now; None if no checkpoint names it."""
    look, view = views.last_look(flow)
    if group_detail(look, group) is None:
        return None
    offsets: CommittedOffsets = request.app.state.committed
    commits = await offsets.of(flow, group, view.status.source_error)
    return group_detail(views.last_look(flow)[0], group, commits, views.find(flow.reverse))


DetailDep = Annotated[GroupDetail | None, Depends(_detail)]


def time_range(now_ms: int, from_ms: int | None, to_ms: int | None) -> tuple[int, int]:
    """Return the time range of a chart, by default the last two hours."""
    end = now_ms + 1 if to_ms is None else to_ms
    begin = end - HOURS * 3_600_000 if from_ms is None else from_ms
    if begin > end:
        raise UsageError(f"from_ms {begin} is after to_ms {end}")
    return begin, end
