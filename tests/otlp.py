"""A collector of OpenTelemetry that keeps what it is sent, for tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.served import answering


@dataclass(frozen=True)
class SeenSpan:
    """A span as it was sent; ids in hexadecimal, empty where there is none."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    attributes: dict[str, Any]
    is_error: bool
    service: str


@dataclass
class Collector:
    """What was sent, spans in the order in which they came. ``answers`` lets it answer at all."""

    spans: list[SeenSpan] = field(default_factory=list)
    points: dict[tuple[str, ...], float] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    asked: threading.Event = field(default_factory=threading.Event)
    answers: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def named(self, name: str) -> SeenSpan:
        """Return the one span of a name."""
        [found] = [span for span in self.spans if span.name == name]
        return found

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            self._take_spans(ExportTraceServiceRequest.FromString(body))
        elif path == "/v1/metrics":
            self._take_metrics(ExportMetricsServiceRequest.FromString(body))

    def _take_spans(self, request: ExportTraceServiceRequest) -> None:
        for sent in request.resource_spans:
            service = _values(sent.resource.attributes)["service.name"]
            for scope in sent.scope_spans:
                for span in scope.spans:
                    ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
                    attributes = _values(span.attributes)
                    self.spans.append(
                        SeenSpan(
                            span.name,
                            *ids,
                            span.kind,
                            attributes,
                            span.status.code == span.status.STATUS_CODE_ERROR,
                            service,
                        )
                    )

    def _take_metrics(self, request: ExportMetricsServiceRequest) -> None:
        for sent in request.resource_metrics:
            for scope in sent.scope_metrics:
                for metric in scope.metrics:
                    self.units[metric.name] = metric.unit
                    for point in metric.gauge.data_points:
                        labels = sorted(_values(point.attributes).items())
                        key = (metric.name, *(value for _, value in labels))
                        self.points[key] = point.as_double


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@contextmanager
def collecting(*, answers: bool = True) -> Iterator[Collector]:
    """Run a collector for OTLP by HTTP."""
    collector = Collector()
    if answers:
        collector.answers.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.asked.set()
            collector.answers.wait()
            collector.take(self.path, body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with answering(server) as address:
        collector.url = f"http://{address}"
        try:
            yield collector
        finally:
            collector.answers.set()
