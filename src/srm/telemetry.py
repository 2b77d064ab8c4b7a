"""Spans for OpenTelemetry, by its standard environment variables; without them nothing is imported.

The variables are in docs/monitoring.md. If the host process has already set up OpenTelemetry, as
Airflow does, spans go there. A slow collector delays srm by at most one second: a thread sends the
spans, and the end of a process's last span waits a second for it.
"""

from __future__ import annotations

import atexit
import dataclasses
import hashlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from srm import logs
from srm.threads import start_thread

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import Span, Tracer

Signal = Literal["TRACES", "METRICS"]
SpanKind = Literal["INTERNAL", "SERVER"]

_FLUSH_S: Final = 1.0
_HTTP: Final = "http/protobuf"
_GRPC: Final = "grpc"
_PARENT_VARIABLES: Final = {"TRACEPARENT": "traceparent", "TRACESTATE": "tracestate"}
_logger = logging.getLogger(__name__)


class Notes:
    """Attributes added to an open span; discarded if spans are disabled."""

    __slots__ = ("_span",)

    def __init__(self, span: Span | None = None) -> None:
        self._span = span

    def note(self, **attributes: object) -> None:
        """Set attributes, as ``srm.<name>``; None values are left out."""
        if self._span is not None:
            self._span.set_attributes(_prefix(attributes))

    def result(self, value: object) -> None:
        """Set the numbers and texts among the fields of a result."""
        if dataclasses.is_dataclass(value):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            self.note(
                **{k: v for k, v in fields.items() if isinstance(v, bool | int | float | str)}
            )

    def rename(self, name: str, **attributes: Any) -> None:
        """Set the span's name once it is known, and attributes by their full names."""
        if self._span is not None:
            self._span.update_name(name)
            self._span.set_attributes(attributes)


@contextmanager
def span(
    name: str,
    *,
    kind: SpanKind = "INTERNAL",
    carrier: Mapping[str, str] | None = None,
    **attributes: object,
) -> Iterator[Notes]:
    """Run the block inside a span, and add its attributes to the lines logged inside.

    The parent is the open span, else the context from ``carrier``, the headers of a request that a
    SERVER answers, or from ``TRACEPARENT`` in the environment. Without one, all spans of one
    ``move`` form one trace across processes. An exception is recorded as the span's outcome.
    """
    with logs.about(**attributes):
        tracer = _tracer()
        if tracer is None:
            yield Notes()
            return
        from opentelemetry import trace  # noqa: PLC0415 -- only where it is wanted

        is_first = not trace.get_current_span().get_span_context().is_valid
        context = _parent(carrier, attributes.get("move")) if is_first else None
        try:
            with tracer.start_as_current_span(
                name, context, trace.SpanKind[kind], _prefix(attributes)
            ) as opened:
                try:
                    yield Notes(opened)
                except BaseException as error:
                    opened.set_attribute("error.type", type(error).__name__)
                    raise
        finally:
            if is_first and kind != "SERVER":
                flush()


def is_enabled(signal: Signal) -> bool:
    """Return whether the environment enables the export of traces or metrics."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = os.environ.get(f"OTEL_{signal}_EXPORTER", "").strip().lower()
    if exporter:
        return exporter != "none"
    return any(
        os.environ.get(name)
        for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    )


def trace_headers() -> dict[str, str]:
    """Return the headers that pass the open span to a called service (W3C Trace Context)."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.propagate import inject  # noqa: PLC0415 -- only where it is wanted

    headers: dict[str, str] = {}
    inject(headers)
    return headers


def trace_environment() -> dict[str, str]:
    """Return the same as environment variables for a child process."""
    return {name.upper(): value for name, value in trace_headers().items()}


def flush() -> None:
    """Send ended spans; wait at most a second for the collector."""
    if _provider.cache_info().currsize:
        provider = _provider()
        if provider is not None:
            _briefly(provider.force_flush)


def _briefly(call: Callable[[], object]) -> None:
    start_thread("srm telemetry", call).join(_FLUSH_S)


def _prefix(attributes: Mapping[str, object]) -> dict[str, Any]:
    return {
        f"srm.{name}": value if isinstance(value, bool | int | float) else str(value)
        for name, value in attributes.items()
        if value is not None
    }


def _parent(carrier: Mapping[str, str] | None, move: object) -> Context | None:
    from opentelemetry import trace  # noqa: PLC0415 -- only where it is wanted
    from opentelemetry.propagate import extract  # noqa: PLC0415

    if carrier is None:
        named = {header: os.environ.get(name) for name, header in _PARENT_VARIABLES.items()}
        carrier = {header: value for header, value in named.items() if value is not None}
    context = extract(carrier)
    if trace.get_current_span(context).get_span_context().is_valid or not move:
        return context
    # A hash of the move, so that the processes need not exchange the id.
    digest = hashlib.blake2b(str(move).encode(), digest_size=24).digest()
    known = trace.SpanContext(
        int.from_bytes(digest[:16], "big"),
        int.from_bytes(digest[16:], "big"),
        is_remote=True,
        trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(known))


@cache
def _tracer() -> Tracer | None:
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry import trace  # noqa: PLC0415 -- the host imports it

        if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            return trace.get_tracer("srm")
    provider = _provider()
    return None if provider is None else provider.get_tracer("srm")


@cache
def _provider() -> Any:
    """Return the provider of spans, None if traces are disabled."""
    exporter = _exporter("TRACES")
    if exporter is None:
        return None
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 -- only where it is wanted
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    provider = TracerProvider(resource=resource(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    atexit.register(_briefly, provider.shutdown)
    return provider


def metric_reader() -> MetricReader | None:
    """Return the periodic exporter of metrics, None if metrics are disabled."""
    exporter = _exporter("METRICS")
    if exporter is None:
        return None
    from opentelemetry.sdk.metrics.export import (  # noqa: PLC0415 -- only where it is wanted
        PeriodicExportingMetricReader,
    )

    return PeriodicExportingMetricReader(exporter)


def resource() -> Resource:
    """Return the sender's resource, by the environment (``OTEL_SERVICE_NAME``), else ``srm``."""
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 -- only where it is wanted

    from srm import __version__  # noqa: PLC0415

    found = Resource.create()
    ours = {"service.version": found.attributes.get("service.version", __version__)}
    if str(found.attributes["service.name"]).startswith("unknown_service"):
        ours["service.name"] = "srm"
    return found.merge(Resource(ours))


def _exporter(signal: Signal) -> Any:
    """Return the exporter that the environment names; one that cannot be loaded is only logged."""
    if not is_enabled(signal):
        return None
    name = os.environ.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() or "otlp"
    protocol = (
        os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL")
        or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or _HTTP
    )
    try:
        return _make(signal, name, protocol)
    except (ImportError, ValueError) as error:
        _logger.warning("OpenTelemetry: no %s are exported: %s", signal.lower(), error)
        return None


def _make(signal: Signal, name: str, protocol: str) -> Any:
    from importlib.metadata import entry_points  # noqa: PLC0415 -- slow, and seldom wanted

    if name == "otlp":
        if protocol not in {_HTTP, _GRPC}:
            raise ValueError(f"OTLP protocol {protocol} is unknown; use {_HTTP} or {_GRPC}")
        name = "otlp_proto_grpc" if protocol == _GRPC else "otlp_proto_http"
    group = f"opentelemetry_{signal.lower()}_exporter"
    for found in entry_points(group=group, name=name):
        return found.load()()
    raise ValueError(f"there is no exporter {name!r}; use otlp, console or none")
