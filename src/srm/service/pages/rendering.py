"""How a page is answered: rendered with everything escaped, under a strict policy, with an ETag."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import cache
from typing import Any, Final
from urllib.parse import quote, urlencode

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.exceptions import HTTPException

from srm import __version__
from srm.domain.names.topics import Flow
from srm.domain.text.amount import amount, few
from srm.domain.text.reason import is_command
from srm.errors import NotFoundError, SrmError
from srm.service.federation.federation import path_of
from srm.service.pages import airflow, attention, units
from srm.service.pages.other_sites import home_of
from srm.service.views.views import Views
from srm.wiring import now_ms

POLICY: Final = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'self'"
)
"""Whatever stands in a name of a topic or group: no script, style or frame of it is run."""

HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_TIMES: Final = re.compile(rb'(<main [^>]*?data-now=")\d+|(<time[^>]*>)[^<]*')


class PageRoute(APIRoute):
    """A route that answers errors as a page, not as a problem document."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route, with that."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except SrmError as error:
                home = home_of(request, error)
                # What is not found has its way out on the page, not the one for programs.
                told = error.what if isinstance(error, NotFoundError) else str(error)
                return error_page(request, error.http_status, told, home)
            except RequestValidationError as error:
                told = "; ".join(f"{e['loc'][-1]}: {e['msg']}" for e in error.errors())
                return error_page(request, 422, told)
            except HTTPException as error:
                answered = error_page(request, error.status_code, str(error.detail))
                answered.headers.update(error.headers or {})  # how to sign in
                return answered

        return answer


_TITLES: Final = {
    401: "Please sign in",
    403: "This is not yours to see",
    404: "Not found",
    422: "The address cannot be understood",
    503: "Not known yet",
}


def error_page(request: Request, status: int, detail: str, home: str = "") -> Response:
    """Answer with a page that says what is wrong; one that passes is looked at again.

    ``home`` is the address of another service that has the page which was asked for.
    """
    title = "Another service watches this" if home else _TITLES.get(status, "Something went wrong")
    named = next(
        ((kind, name) for kind, name in request.path_params.items() if kind in {"topic", "group"}),
        None,
    )
    asked = named if status == 404 and not home else None
    there = f"{home}{quote(path_of(request))}" if home else ""
    return page(
        request,
        "error.html",
        status=status,
        title=title,
        detail=detail,
        asked=asked,
        home=home,
        there=there,
    )


def page(request: Request, template: str, status: int = 200, **values: object) -> Response:
    """Render a template, or answer 304 where the browser shows the same already.

    The relative times on it do not count: those the browser keeps going by itself.
    """
    views: Views = request.app.state.views
    root = root_of(request)
    body = (
        environment()
        .get_template(template)
        .render(
            values,
            status=status,
            root=root,
            here=request.url.path.removeprefix(root) or "/",
            now_ms=now_ms(),
            version=__version__,
            links=Links(root),
            airflow=airflow.Airflow(views.config),
            query=dict(request.query_params),
        )
        .encode()
    )
    lasting = _TIMES.sub(rb"\1\2", body)
    etag = f'W/"{hashlib.blake2b(lasting, digest_size=12).hexdigest()}"'
    headers = {**HEADERS, "ETag": etag}
    if status == 200 and etag in request.headers.get("If-None-Match", ""):
        return Response(status_code=304, headers=headers)
    return HTMLResponse(body, status, headers)


def root_of(request: Request) -> str:
    """Return the path under which the application is seen, without a slash at its end."""
    return str(request.scope.get("root_path", "")).rstrip("/")


class Links:
    """Addresses of the pages, by what they are of.

    Args:
        root: path under which the application is seen.
    """

    def __init__(self, root: str) -> None:
        self._root = root

    def __call__(self, *parts: str, **query: object) -> str:
        """Return an address below ``/ui``; parameters without a value are left out."""
        return self._under("ui", parts, query)

    def flow(self, flow: Flow | str, *parts: str, **query: object) -> str:
        """Return the address of a flow, or of a part of it."""
        found = Flow.parse(flow) if isinstance(flow, str) else flow
        return self("flows", found.source, found.target, *parts, **query)

    def api(self, *parts: str, **query: object) -> str:
        """Return an address of the REST API."""
        return self._under("v2", parts, query)

    def _under(self, first: str, parts: Iterable[str], query: Mapping[str, object]) -> str:
        path = "".join(f"/{quote(part, safe='')}" for part in (first, *parts))
        asked = urlencode({name: value for name, value in query.items() if value not in {"", None}})
        return f"{self._root}{path}{f'?{asked}' if asked else ''}"

    def static(self, path: str) -> str:
        """Return the address of a file; it changes with the version."""
        return f"{self._root}/static/{path}?{__version__}"


@cache
def environment() -> Environment:
    """Return the templates' environment: all values are escaped, a missing one is an error."""
    found = Environment(
        loader=PackageLoader("srm.service.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(
        count=units.count,
        exact=units.exact,
        span=units.span,
        rate=units.rate,
        millis=units.millis,
        duration=units.duration,
        amount=amount,
        few=few,
        arrow=attention.arrow,
        breakable=breakable,
        quoted=shlex.quote,
        sentence=lambda text: text[:1].upper() + text[1:],
    )
    found.tests.update(command=is_command)
    found.globals.update(
        ago=units.ago, lasting=units.lasting, utc=units.utc, iso=units.iso, NONE=units.NONE
    )
    return found


def breakable(name: str) -> Markup:
    """Let a long name break after its dots, dashes and underscores."""
    escaped = Markup.escape(name)
    return Markup(re.sub(r"([._/-])(?=[^\s])", r"\1<wbr>", str(escaped)))  # noqa: S704 -- escaped


def nothing_here(request: Request) -> Response:
    """Answer an address under ``/ui`` that no page has.

    Raises:
        NotFoundError: always.
    """
    raise NotFoundError(f"there is no page {request.url.path}")
