"""Responses: JSON with an ETag, parts of lists, errors as problem documents."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Final, TypeVar

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from srm.domain.text.documents import adapter, encode
from srm.errors import SrmError
from srm.service.access.access import one_line
from srm.service.views.documents import Page, Problem

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
"""OpenAPI error responses of any route; the schema of a problem is in the components.

With a model, FastAPI would compile it once for each response and route.
"""


def answer(
    request: Request, document: object, of: object | None = None, status: int = 200
) -> Response:
    """Return a document as JSON, or 304 if the client has it already.

    ``of``: its type if that is generic.
    ``status``: HTTP status; 304 replaces only 200.
    """
    body = encode(document) if of is None else adapter(of).dump_json(document)  # type: ignore[arg-type]
    etag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    known = request.headers.get("If-None-Match", "")
    if status == 200 and request.method == "GET" and (known.strip() == "*" or etag in known):
        return Response(status_code=304, headers=headers)
    return Response(body, status, headers, "application/json")


def page(
    items: Sequence[_T], offset: int, limit: int, missing: dict[str, str] | None = None
) -> Page[_T]:
    """Return one part of a list."""
    return Page(tuple(items[offset : offset + limit]), len(items), offset, missing or {})


def containing(items: Iterable[_T], search: str, *names: Callable[[_T], str]) -> list[_T]:
    """Return the items with a name that contains a text, in any case."""
    wanted = search.lower()
    return [one for one in items if any(wanted in name(one).lower() for name in names)]


def problem(request: Request, status: int, title: str, detail: str) -> Response:
    """Return a problem document."""
    document = Problem("about:blank", title, status, detail, request.url.path)
    return Response(encode(document), status_code=status, media_type=PROBLEM)


def problem_of(request: Request, error: SrmError) -> Response:
    """Return the problem document of an error."""
    answered = problem(request, error.http_status, type(error).__name__, str(error))
    if error.retriable:
        answered.headers["Retry-After"] = "5"
    return answered


def answer_errors(app: FastAPI) -> None:
    """Make the application return all errors as problem documents."""

    def of_srm(request: Request, error: Exception) -> Response:
        assert isinstance(error, SrmError)  # noqa: S101 -- registered for it below
        return problem_of(request, error)

    def of_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 -- as above
        title = "Not found" if error.status_code == 404 else str(error.detail)
        answered = problem(request, error.status_code, title, str(error.detail))
        answered.headers.update(error.headers or {})
        return answered

    def of_input(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101 -- as above
        told = "; ".join(f"{'.'.join(map(str, e['loc'][1:]))}: {e['msg']}" for e in error.errors())
        return problem(request, 422, "The request cannot be understood", told)

    def of_anything(request: Request, error: Exception) -> Response:
        path = one_line(request.url.path)
        _logger.error("%s %s failed", request.method, path, exc_info=error)
        return problem(request, 500, "Internal error", f"{type(error).__name__}; see the log")

    app.add_exception_handler(SrmError, of_srm)
    app.add_exception_handler(HTTPException, of_http)
    app.add_exception_handler(RequestValidationError, of_input)
    app.add_exception_handler(Exception, of_anything)
