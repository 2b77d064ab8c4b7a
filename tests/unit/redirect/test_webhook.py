"""The webhook against a server of its own: signed, tried again, refused, and bounded in time."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.served import answering
from tests.unit.redirect.orders import ORDER

from srm.engine.ports import CallResult
from srm.redirect import Webhook

SECRET = "it's a secret"


@dataclass
class Hook:
    """Answers with the given statuses, the last one for ever; keeps what was posted."""

    statuses: list[int] = field(default_factory=lambda: [200])
    text: bytes = b"thank you\nand more"
    posts: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)
    stall: bool = False
    url: str = ""


@pytest.fixture
def hook() -> Iterator[Hook]:
    state = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.posts.append((dict(self.headers.items()), body))
            if state.stall:
                state.release.wait(60)
            status = state.statuses.pop(0) if len(state.statuses) > 1 else state.statuses[0]
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(state.text)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with answering(server) as address:
        state.url = f"http://{address}/hook?token=hunter2"
        yield state
        state.release.set()


def post(hook: Hook, limit_s: float = 30.0) -> CallResult:
    return Webhook(hook.url, SECRET, limit_s).call(ORDER, threading.Event())


def test_an_order_is_posted_as_json_that_its_receiver_can_check(hook):
    answer = post(hook)

    [(headers, body)] = hook.posts
    signed = headers["X-Srm-Timestamp"].encode() + b"." + body
    expected = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert answer == CallResult(done=True, said="127.0.0.1 answered 200: thank you")
    assert headers["X-Srm-Signature"] == f"sha256={expected}"
    assert abs(int(headers["X-Srm-Timestamp"]) - time.time()) < 600
    assert headers["Idempotency-Key"] == ORDER.key
    assert json.loads(body)["step"] == "go"
    assert json.loads(body)["target"] == {"alias": "B", "bootstrap_servers": "b1:9092,b2:9092"}


def test_what_may_pass_is_tried_again_with_the_same_key(hook):
    hook.statuses = [503, 429, 204]

    assert post(hook).done
    assert len(hook.posts) == 3
    assert {headers["Idempotency-Key"] for headers, _ in hook.posts} == {ORDER.key}


@pytest.mark.parametrize("status", [400, 401, 404, 302])
def test_a_refusal_is_taken_at_once(hook, status):
    hook.statuses = [status]

    answer = post(hook)

    assert not answer.done
    assert f"answered {status}" in answer.said
    assert len(hook.posts) == 1


def test_one_that_is_down_fails_when_its_time_is_over_and_its_address_stays_hidden(hook):
    hook.statuses = [500]

    answer = post(hook, limit_s=3.0)

    assert not answer.done
    assert answer.said.startswith("127.0.0.1 answered 500: thank you; tried ")
    assert "hunter2" not in answer.said


def test_its_address_is_in_no_log(hook, caplog):
    with caplog.at_level(logging.DEBUG):
        post(hook)

    assert "hunter2" not in caplog.text


def test_one_that_never_answers_is_given_up(hook):
    hook.stall = True

    answer = post(hook, limit_s=0.3)

    assert not answer.done
    assert "127.0.0.1 does not answer" in answer.said
    assert "hunter2" not in answer.said


def test_a_call_that_is_cancelled_is_not_tried_again(hook):
    hook.statuses = [503]
    cancelled = threading.Event()
    cancelled.set()

    assert not Webhook(hook.url, SECRET, 600.0).call(ORDER, cancelled).done
    assert len(hook.posts) == 1


def test_an_answer_cannot_write_to_the_terminal(hook):
    hook.text = b"\x1b[31mred\x07 alert"

    assert post(hook).said == "127.0.0.1 answered 200: \\x1b[31mred\\x07 alert"
