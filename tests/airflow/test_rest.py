"""Notes and progress by Airflow's REST API, against a real HTTP server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from tests.served import answering

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
            refused = self.headers.get("Authorization") == "Bearer expired"
            missing = "missing" in self.path
            self.send_response(401 if refused else 404 if missing else 200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_PATCH = do_POST = do_PUT = answer  # noqa: N815 - names of http.server

        def log_message(self, *_args: Any) -> None:
            """Keep quiet."""

    with answering(HTTPServer(("127.0.0.1", 0), Handler)) as address:
        for variable in (rest.USER_VARIABLE, rest.PASSWORD_VARIABLE):  # of the tests' Airflow
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setattr(rest.conf, "get", lambda *_args, **_kwargs: f"http://{address}")
        yield seen


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
    monkeypatch.setattr(rest, "HAS_TASK_STATE", True)

    AirflowRest("d", "r").set_progress("wait", -1, {"remaining_records": 7})

    assert requests == [
        (
            "PUT",
            "/api/v2/dags/d/dagRuns/r/taskInstances/wait/state-store/progress?map_index=-1",
            "Bearer mine",
            {"value": {"remaining_records": 7}},
        )
    ]


def test_a_token_that_has_expired_is_renewed_by_user_and_password(
    requests: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(rest.TOKEN_VARIABLE, "expired")
    monkeypatch.setenv(rest.USER_VARIABLE, "ada")
    monkeypatch.setenv(rest.PASSWORD_VARIABLE, "s3cret")

    AirflowRest("d", "r").set_note("text")

    refused, login, note = requests
    assert (refused[0], refused[2]) == ("PATCH", "Bearer expired")
    assert login == ("POST", "/auth/token", None, {"username": "ada", "password": "s3cret"})
    assert note[2:] == ("Bearer t0ken", {"note": "text"})


def test_a_program_logs_in_with_its_client_credentials(
    requests: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(rest.CLIENT_VARIABLE, "srm")
    monkeypatch.setenv(rest.CLIENT_SECRET_VARIABLE, "s3cret")

    AirflowRest("d", "r").set_note("text")

    assert requests[0] == (
        "POST",
        "/auth/token",
        None,
        {"grant_type": "client_credentials", "client_id": "srm", "client_secret": "s3cret"},
    )


def test_after_a_refusal_no_more_notes_are_tried_and_nothing_is_raised(
    requests: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "HAS_TASK_STATE", True)
    api = AirflowRest("d", "missing")

    api.set_note("one")
    sent = len(requests)
    api.set_note("two")

    assert not api.takes_notes
    assert len(requests) == sent
    assert api.takes_progress, "progress has a failure of its own"


def test_an_airflow_without_state_stores_still_takes_notes(
    requests: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "HAS_TASK_STATE", False)
    api = AirflowRest("d", "r")

    api.set_progress("wait", -1, {"remaining_records": 7})
    api.set_note("text")

    assert [method for method, *_ in requests] == ["GET", "PATCH"]
