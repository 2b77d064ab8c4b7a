"""Notes and progress by Airflow's REST API, against a real HTTP server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from srm_airflow import rest
from srm_airflow.rest import AirflowRest

pytestmark = pytest.mark.airflow


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Answer as Airflow does where everybody is an administrator; return what was asked."""
    seen: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked = json.loads(body) if body else None
            seen.append((self.command, self.path, self.headers.get("Authorization"), asked))
            text = json.dumps({"access_token": "t0ken"}).encode()
            self.send_response(404 if "missing" in self.path else 200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_PATCH = do_PUT = answer  # noqa: N815 - names of http.server

        def log_message(self, *_args: Any) -> None:
            """Keep quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(rest.conf, "get", lambda *_args, **_kwargs: url)
    yield seen
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_note_is_written_with_a_token_that_airflow_gives(requests: list[Any]) -> None:
    AirflowRest("srm_failover", "manual__2026-01-01T00:00:00+00:00").set_note("x" * 2000)

    token, note = requests
    assert token[:2] == ("GET", "/auth/token")
    method, path, authorization, body = note
    assert (method, authorization) == ("PATCH", "Bearer t0ken")
    assert path == (
        "/api/v2/dags/srm_failover/dagRuns/manual__2026-01-01T00%3A00%3A00%2B00%3A00"
        "?update_mask=note"
    )
    assert body == {"note": "x" * 1000}


def test_the_environment_names_address_and_token_and_progress_goes_to_the_state_store(
    requests: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(rest.URL_VARIABLE, rest.conf.get("api", "base_url"))
    monkeypatch.setattr(rest.conf, "get", lambda *_args, **_kwargs: "http://127.0.0.1:9")
    monkeypatch.setenv(rest.TOKEN_VARIABLE, "mine")

    AirflowRest("d", "r").set_progress("wait", -1, {"remaining_records": 7})

    assert requests == [
        (
            "PUT",
            "/api/v2/dags/d/dagRuns/r/taskInstances/wait/state-store/progress?map_index=-1",
            "Bearer mine",
            {"value": {"remaining_records": 7}},
        )
    ]


def test_after_a_refusal_nothing_more_is_tried_and_nothing_is_raised(requests: list[Any]) -> None:
    api = AirflowRest("d", "missing")

    api.set_note("one")
    asked = len(requests)
    api.set_note("two")

    assert api.works is False
    assert len(requests) == asked
