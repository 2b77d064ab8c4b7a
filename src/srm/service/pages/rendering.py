"""Rendering of pages: with all values escaped, a strict policy and an ETag."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import cache
from itertools import combinations
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
from srm.clock import now_ms
from srm.config.model import Config
from srm.domain.moves.request import run_move_id
from srm.domain.names.topics import Flow
from srm.domain.text.amount import amount, few, is_command
from srm.domain.text.documents import cause
from srm.errors import NotFoundError, SrmError
from srm.service.federation.federation import path_of
from srm.service.federation.merged_lists import home_of
from srm.service.pages import figures
from srm.service.pages.figures import SPAN_NAMES, STATISTICS
from srm.service.views.series import METRICS
from srm.service.views.views import Views

POLICY: Final = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'self'"
)
"""Blocks scripts, styles and frames that the name of a topic or group may contain."""

HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_TIMES: Final = re.compile(rb'(<main [^>]*?data-now=")\d+|(<time[^>]*>)[^<]*')


class PageRoute(APIRoute):
    """A route that renders errors as a page, not as a problem document."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except SrmError as error:
                home = home_of(request, error)
                # The page has a link for 404 instead of the advice for programs.
                text = error.what if isinstance(error, NotFoundError) else str(error)
                return error_page(request, error.http_status, text, home)
            except RequestValidationError as error:
                text = "; ".join(f"{e['loc'][-1]}: {cause(e['msg'])}" for e in error.errors())
                return error_page(request, 422, text)
            except HTTPException as error:
                answered = error_page(request, error.status_code, str(error.detail))
                answered.headers.update(error.headers or {})  # how to sign in
                return answered

        return answer


_TITLES: Final = {
    401: "Please sign in",
    403: "Access denied",
    404: "Not found",
    422: "Invalid address",
    503: "Not known yet",
}


def error_page(request: Request, status: int, detail: str, home: str = "") -> Response:
    """Answer with an error page, refreshed if temporary; ``home``: a service with the page."""
    title = "Another service watches this" if home else _TITLES.get(status, "Internal error")
    named = (one for one in request.path_params.items() if one[0] in {"topic", "group"})
    subject = next(named, None) if status == 404 and not home else None
    there = f"{home}{quote(path_of(request))}" if home else ""
    values = {"title": title, "detail": detail, "subject": subject, "home": home, "there": there}
    return page(request, "error.html", status, **values)


def page(request: Request, template: str, status: int = 200, **values: object) -> Response:
    """Render a template, or answer 304 if only relative times would change in the browser."""
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
            airflow=Airflow(views.config),
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
    return str(request.scope.get("root_path", "")).rstrip("/")


class Links:
    """Addresses of the pages."""

    def __init__(self, root: str) -> None:
        self._root = root

    def __call__(self, *parts: str, **query: object) -> str:
        """Return an address below ``/ui``; parameters without a value are omitted."""
        return self._under("ui", parts, query)

    def flow(self, flow: Flow | str, *parts: str, **query: object) -> str:
        found = Flow.parse(flow) if isinstance(flow, str) else flow
        return self("flows", found.source, found.target, *parts, **query)

    def api(self, *parts: str, **query: object) -> str:
        return self._under("v2", parts, query)

    def _under(self, first: str, parts: Iterable[str], query: Mapping[str, object]) -> str:
        path = "".join(f"/{quote(part, safe='')}" for part in (first, *parts))
        pairs = urlencode({name: value for name, value in query.items() if value not in {"", None}})
        return f"{self._root}{path}{f'?{pairs}' if pairs else ''}"

    def static(self, path: str) -> str:
        """Return the address of a static file, which changes with the version."""
        return f"{self._root}/static/{path}?{__version__}"


_FILTERS: Final = ("count", "exact", "rate", "millis", "duration", "arrow")
_GLOBALS: Final = ("ago", "lasting", "utc", "iso", "NONE", "PART")


@cache
def environment() -> Environment:
    found = Environment(
        loader=PackageLoader("srm.service.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(
        {name: getattr(figures, name) for name in _FILTERS},
        amount=amount,
        few=few,
        breakable=breakable,
        quoted=shlex.quote,
        sentence=lambda text: text[:1].upper() + text[1:],
    )
    found.tests.update(command=is_command)
    found.globals.update(
        {name: getattr(figures, name) for name in _GLOBALS},
        spans=SPAN_NAMES,
        stats=STATISTICS,
        metrics={name: metric.title for name, metric in METRICS.items()},
    )
    return found


def breakable(name: str) -> Markup:
    escaped = Markup.escape(name)
    return Markup(re.sub(r"([._/-])(?=[^\s])", r"\1<wbr>", str(escaped)))  # noqa: S704 -- escaped


FAILOVER: Final = "srm_failover"
_OPERATIONS: Final = ("failover", "failback")


class Airflow:
    """Addresses in Airflow."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.url = config.service.airflow_url.rstrip("/")

    def dag(self, flow: Flow) -> str:
        pairs, ends = combinations(self._config.clusters, 2), {flow.source, flow.target}
        return ".".join((FAILOVER, *next((pair for pair in pairs if {*pair} == ends), ())))

    def dag_page(self, flow: Flow) -> str:
        return f"{self.url}/dags/{quote(self.dag(flow))}"

    def runs_page(self, flow: Flow, move_id: str) -> str:
        return f"{self.dag_page(flow)}/runs?run_id_pattern={quote(run_pattern(move_id))}"


def move_ids(dag_id: str, run_id: str) -> tuple[str, ...]:
    clusters = dag_id.split(".")[1:]
    return tuple(run_move_id(operation, clusters, run_id) for operation in _OPERATIONS)


def run_pattern(move_id: str) -> str:
    """Return a pattern of SQL's LIKE for the id of the run that made a move."""
    name = move_id.partition("-")[2].rpartition("-")[0]
    return re.sub(r"-", "_", name) + "%"
