"""Number and duration of the service's requests by route."""

from __future__ import annotations

import time
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
REQUESTS: Final = "srm_service_requests_total"
DURATION: Final = "srm_service_request_duration_seconds"
NO_ROUTE: Final = "(none)"


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


class NotedStatus:
    """Sends an answer and records its status; 500 if there is none."""

    def __init__(self, send: Send) -> None:
        self.status = 500
        self._send = send

    async def __call__(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


class CountRequests:
    """ASGI middleware that counts requests."""

    def __init__(self, app: ASGIApp, metrics: RequestMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and count the request when the answer was sent."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, noted = time.monotonic(), NotedStatus(send)
        try:
            await self._app(scope, receive, noted)
        finally:
            self._metrics.note(scope, noted.status, time.monotonic() - began)
