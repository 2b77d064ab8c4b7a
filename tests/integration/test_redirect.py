"""Applications that know nothing of srm, moved between real brokers by a command and a webhook."""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, Producer
from tests import moves
from tests.integration.moving import Site, begin
from tests.served import answering
from tests.waiting import eventually
from typer.testing import CliRunner

from srm.cli.main import app
from srm.config.loader import load_config
from srm.domain.moves.request import MoveRequest

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

SECRET = "signed with this"

SWITCH = """#!{python}
import json, os, sys
order = json.load(sys.stdin)
place = order["target" if order["step"] == "go" else "source"]
wanted = dict(run=order["step"] != "hold", servers=place["bootstrap_servers"])
with open({file!r} + ".new", "w") as out:
    json.dump(wanted, out)
os.replace({file!r} + ".new", {file!r})
print("told to", order["step"])
"""


@pytest.fixture
def hook() -> Iterator[tuple[str, list[dict[str, object]]]]:
    """A server that keeps the orders whose signature is right; each is answered 503 first."""
    orders: list[dict[str, object]] = []
    seen: set[str] = set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            signed = self.headers["X-Srm-Timestamp"].encode() + b"." + body
            ours = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
            genuine = hmac.compare_digest(self.headers["X-Srm-Signature"], f"sha256={ours}")
            key = self.headers["Idempotency-Key"]
            if genuine and key in seen:
                orders.append(json.loads(body))
            self.send_response(401 if not genuine else 204 if key in seen else 503)
            seen.add(key)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with answering(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield f"http://{address}/moves", orders


class Plain:
    """A producer and a consumer that are stopped and started as a file says, as a unit would be."""

    def __init__(self, site: Site, group: str, file: Path) -> None:
        self.acknowledged: list[bytes] = []
        self.processed: list[bytes] = []
        self.servers: set[str] = set()
        self._site, self._group, self._file = site, group, file
        self.enough = threading.Event()
        self._stop = threading.Event()
        self._number = 0
        self._threads = [
            threading.Thread(target=self._supervise, args=(work,), daemon=True)
            for work in (self._produce, self._consume)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    @property
    def written(self) -> int:
        return self._number

    def wanted(self) -> dict[str, object]:
        return dict(json.loads(self._file.read_text()))

    def _supervise(self, work) -> None:
        while not self._stop.wait(0.05):
            wanted = self.wanted()
            if wanted["run"]:
                work(str(wanted["servers"]), lambda w=wanted: self._goes_on(w))

    def _goes_on(self, started_with: dict[str, object]) -> bool:
        return not self._stop.is_set() and self.wanted() == started_with

    def _produce(self, servers: str, goes_on) -> None:
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        while goes_on() and not self.enough.is_set():
            self._number += 1
            producer.produce(
                self._site.topic,
                f"payment-{self._number}".encode(),
                str(self._number % 50),
                on_delivery=lambda error, message: (
                    error or self.acknowledged.append(message.value())
                ),
            )
            producer.poll(0.005)
        assert producer.flush(60) == 0

    def _consume(self, servers: str, goes_on) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": self._group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([f"^([PB]{self._site.unique}\\.)?{self._site.topic}$"])
        try:
            while goes_on():
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    self.processed.append(message.value())
                    self.servers.add(servers)
                    consumer.commit(message, asynchronous=False)
        finally:
            consumer.close()


def test_plain_applications_are_moved_by_a_command_and_lose_and_repeat_nothing(
    site: Site, hook, tmp_path: Path
) -> None:
    url, orders = hook
    file, switch = tmp_path / "wanted.json", tmp_path / "switch"
    switch.write_text(SWITCH.format(python=sys.executable, file=str(file)))
    switch.chmod(0o755)
    site.path.write_text(
        site.path.read_text()
        + f"failover.redirect = webhook, command\nfailover.webhook.url = {url}\n"
        + f"failover.webhook.secret = {SECRET}\nfailover.command = {switch}\n"
    )
    site.config = load_config(site.path)
    address = {a: site.config.client(a, "admin")["bootstrap.servers"] for a in (site.p, site.b)}
    file.write_text(json.dumps({"run": True, "servers": address[site.p]}))
    group = site.group("plain")

    with ExitStack() as stack:
        stack.enter_context(site.replicating())
        application = stack.enter_context(Plain(site, group, file))
        eventually(lambda: len(application.processed) > 200, "it works on P")
        request = MoveRequest(
            *("failover", site.p, site.b, (site.topic,), (group,)),
            quiet_seconds=0.5,
            slow_writer_seconds=1.0,
        )
        with site.context(site.p, site.b) as context:
            begin(context, request, "there")
            report = moves.carry_out(context, "there")
        before = len(application.acknowledged)
        eventually(lambda: len(application.acknowledged) > before + 200, "it writes to B")
        application.enough.set()
        eventually(lambda: len(application.processed) >= application.written, "all is read")

    asked = ["failover", "redirect", "there", "--config", str(site.path)]
    again = CliRunner().invoke(app, asked)

    assert again.exit_code == 0, again.output
    assert "1/go/webhook: done, 127.0.0.1 answered 204" in again.stdout
    assert "1/go/command: done, switch exited with 0: told to go" in again.stdout
    assert report.ok, report.problems
    assert application.servers == set(address.values())
    assert [(order["step"], order["attempt"]) for order in orders] == [("hold", 1), ("go", 1)]
    assert Counter(application.processed) == Counter(application.acknowledged)
    assert len(application.processed) == application.written
