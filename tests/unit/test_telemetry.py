"""Spans go where the standard variables say, in the right trace; without them nothing happens."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from tests.otlp import Collector, collecting
from tests.unit.redirect.orders import ORDER
from tests.waiting import eventually

from srm import logs, telemetry
from srm.errors import GateClosedError
from srm.redirect import Webhook

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let each test find out anew what the environment says."""
    for name in ("OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "TRACEPARENT"):
        monkeypatch.delenv(name, raising=False)
    telemetry._tracer.cache_clear()
    telemetry._provider.cache_clear()
    yield
    telemetry.flush()
    telemetry._tracer.cache_clear()
    telemetry._provider.cache_clear()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
        monkeypatch.setattr(telemetry, "_FLUSH_S", 60.0)  # so that it is there when a span is over
        yield made


@pytest.mark.parametrize("said", [{}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_without_the_variables_opentelemetry_is_not_even_imported(said: dict[str, str]) -> None:
    code = (
        "import sys, srm.cli.main, srm.service.app\n"
        "from srm import telemetry\n"
        "with telemetry.span('checkpoints.emit', flow='P->B') as span:\n"
        "    span.note(groups=1)\n"
        "    headers = telemetry.trace_headers()\n"
        "print(headers, [name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env=said,
        check=True,
    )

    assert done.stdout == "{} []\n"


def test_the_sdk_can_be_switched_off(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")

    with telemetry.span("checkpoints.emit"):
        assert telemetry.trace_headers() == {}

    assert not collector.spans


@dataclass(frozen=True)
class Summary:
    groups: int
    skipped: str
    outcomes: tuple[str, ...]


def test_a_span_says_what_was_done_for_which_flow_and_with_which_result(
    collector: Collector,
) -> None:
    with telemetry.span("checkpoints.emit", flow="P->B", engine=None) as span:
        span.result(Summary(3, "", ("a", "b")))

    seen = collector.named("checkpoints.emit")
    assert seen.attributes == {"srm.flow": "P->B", "srm.groups": 3, "srm.skipped": ""}
    assert (seen.parent_id, seen.is_error, seen.service) == ("", False, "srm")


def test_an_error_is_the_outcome_of_its_span(collector: Collector) -> None:
    with pytest.raises(GateClosedError), telemetry.span("move.go"):
        raise GateClosedError("group audit is not synchronised")

    seen = collector.named("move.go")
    assert seen.is_error
    assert seen.attributes["error.type"] == "GateClosedError"


def test_the_name_of_the_service_is_the_environments(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "srm-site-b")

    with telemetry.span("topics.sync"):
        pass

    assert collector.named("topics.sync").service == "srm-site-b"


def test_steps_stand_inside_of_what_they_are_steps_of(collector: Collector) -> None:
    with telemetry.span("move", move="m1"), telemetry.span("move.hold", move="m1"):
        pass

    outer, inner = collector.named("move"), collector.named("move.hold")
    assert (inner.trace_id, inner.parent_id) == (outer.trace_id, outer.span_id)


def test_all_steps_of_a_move_are_one_trace_whichever_process_takes_them(
    collector: Collector,
) -> None:
    for move, step in (("m1", "hold"), ("m1", "go"), ("m2", "hold")):
        with telemetry.span(f"move.{step}", move=move):
            pass

    held, gone, other = (span.trace_id for span in collector.spans)
    assert held == gone != other


def test_a_trace_that_came_with_the_environment_goes_on(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", PARENT)

    with telemetry.span("move.hold", move="m1"):
        assert telemetry.trace_environment()["TRACEPARENT"].split("-")[1] == PARENT.split("-")[1]

    seen = collector.named("move.hold")
    assert [seen.trace_id, seen.parent_id] == PARENT.split("-")[1:3]


def test_a_webhook_is_told_the_span_that_calls_it(collector: Collector) -> None:
    told = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(self.headers["traceparent"])
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        hook = Webhook(f"http://127.0.0.1:{server.server_port}/", "key", 30.0)
        with telemetry.span("move.hold", move="m1"):
            assert hook.call(ORDER, threading.Event()).done

    seen = collector.named("move.hold")
    assert told == [f"00-{seen.trace_id}-{seen.span_id}-01"]


def test_a_collector_that_hangs_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting(answers=False) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setattr(telemetry, "_FLUSH_S", 0.01)

        with telemetry.span("move.hold", move="m1"):
            pass

        eventually(collector.asked.is_set, "the collector is asked")
        assert not collector.spans
        collector.answers.set()
        eventually(lambda: collector.spans, "the span arrives when the collector answers")


def test_an_exporter_that_cannot_be_had_is_told_of_and_hinders_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")

    with telemetry.span("move.hold"):
        pass

    assert "there is no exporter 'zipkin'" in caplog.text


def test_lines_of_log_name_their_span(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), telemetry.span("move.hold", move="m1", flow="P->B"):
        [record] = [logging.getLogger("srm").makeRecord("srm", 20, "", 0, "held", (), None)]
        line = json.loads(logs.json_line(record))

    seen = collector.named("move.hold")
    assert (line["trace_id"], line["span_id"]) == (seen.trace_id, seen.span_id)
    assert (line["move"], line["flow"]) == ("m1", "P->B")
