"""Requests of the service: number and duration by route, and a span for each if enabled."""

from __future__ import annotations

import time
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from srm import telemetry
from srm.service.federation.federation import path_of

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
REQUESTS: Final = "srm_service_requests_total"
DURATION: Final = "srm_service_request_duration_seconds"
NO_ROUTE: Final = "(none)"
_UNTRACED: Final = ("/metrics", "/health", "/static")
"""Routes without traces, as machines request them all the time."""


class RequestMetrics:
    """Counts requests by route, not by path, so that the number of series is bounded."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            REQUESTS,
            "Requests answered by the service.",
            ("method", "route", "status"),
            registry=registry,
        )
        self._duration = Histogram(
            DURATION,
            "Time from a request until its answer was sent.",
            ("method", "route"),
            registry=registry,
            buckets=_BUCKETS,
        )

    def note(self, scope: Scope, status: int, seconds: float) -> None:
        """Count one request."""
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = route_of(scope)
        self._requests.labels(method, route, str(status)).inc()
        self._duration.labels(method, route).observe(seconds)


def route_of(scope: Scope) -> str:
    """Return the route that answered a request, as in the API document."""
    path = getattr(scope.get("route"), "path", None)
    if path is None and scope.get("endpoint") is not None:
        path = scope.get("root_path", "").removeprefix(scope.get("app_root_path", ""))
    return path or NO_ROUTE


class WatchRequests:
    """ASGI middleware that counts each request, and creates a span in the trace of its caller."""

    def __init__(self, app: ASGIApp, metrics: RequestMetrics) -> None:
        self._app = app
        self._metrics = metrics
        self._traces = telemetry.is_enabled("TRACES")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and count the request when the answer was sent."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif self._traces and not path_of(Request(scope)).startswith(_UNTRACED):
            headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
            with telemetry.span(scope["method"], kind="SERVER", carrier=headers) as span:
                await self._answer(scope, receive, send, span)
        else:
            await self._answer(scope, receive, send, None)

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, span: telemetry.Notes | None
    ) -> None:
        began, status = time.monotonic(), 500

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note)
        finally:
            self._metrics.note(scope, status, time.monotonic() - began)
            if span is not None:
                told = {
                    "http.request.method": scope["method"],
                    "http.route": route_of(scope),
                    "http.response.status_code": status,
                    "url.path": scope["path"],
                }
                span.rename(f"{scope['method']} {route_of(scope)}", **told)
