"""Three services, each of one target: one answers for all while another hangs and a third dies."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.certificates import Authority
from tests.conftest import BrokerFactory
from tests.waiting import eventually

from srm.service.access.passwords import line
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.stack.process import LOOPBACK, free_port

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

TARGETS = ("P", "B", "C")
ALICE = ("alice", "of alice")
LIMIT_S = 6
"""Of an answer; one that a busy machine gives later is in the next look of the test."""


@dataclass
class Service:
    """A process of ``srm-service`` that watches one target."""

    target: str
    port: int
    process: subprocess.Popen[bytes]
    client: httpx.Client

    def get(self, path: str, status: int = 200) -> dict[str, Any]:
        """Wait for an answer with a status, and return it."""
        found: list[dict[str, Any]] = []

        def answered() -> bool:
            with suppress(httpx.TransportError):
                answer = self.client.get(path, auth=ALICE)
                if answer.status_code == status:
                    found.append(answer.json())
            return bool(found)

        eventually(answered, f"{self.target} answers {path} with {status}")
        return found[0]

    def await_flows(self, *flows: str, **missing: str) -> None:
        """Wait until these are all flows, and until these targets are missing for these reasons."""

        def shown() -> bool:
            answer = self.get("/v2/flows")
            why = answer["missing"]
            return (
                [row["flow"] for row in answer["items"]] == [*flows]
                and why.keys() == missing.keys()
                and all(reason in why[target] for target, reason in missing.items())
            )

        eventually(shown, f"{self.target} shows {flows} without {missing}")

    def stop(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(60)


Starter = Callable[[str], Service]


@pytest.fixture
def start(
    clusters: Mapping[str, KafkaBroker], broker_factory: BrokerFactory, tmp_path: Path
) -> Iterator[Starter]:
    """Start services over three clusters; they speak TLS, and know each other by it and a user."""
    addresses = {alias: clusters[alias].bootstrap for alias in ("P", "B")}
    addresses["C"] = broker_factory("C").bootstrap
    authority = Authority()
    server = authority.broker(LOOPBACK)
    (tmp_path / "ca.pem").write_text(authority.own.pem)
    (tmp_path / "server.pem").write_text(server.pem)
    (tmp_path / "server.key").write_text(server.key_pem)
    users = (line(*ALICE), line("gateway", "of the gateway"))
    (tmp_path / "users").write_text("\n".join(users))
    shared = "\n".join(
        [
            "clusters = P, B, C",
            *(f"{alias}.bootstrap.servers = {where}" for alias, where in addresses.items()),
            "P->B.enabled = true",
            "P->C.enabled = true",
            "B->P.enabled = true",
            "topics = Payments.*",
            "service.auth = basic",
            "service.users.location = users",
            "service.ssl.certificate.location = server.pem",
            "service.ssl.key.location = server.key",
            "service.advertise = true",
            "service.advertised.topic.replication.factor = 1",
            "service.remote.querying.enabled = true",
            f"service.remote.timeout.seconds = {LIMIT_S}",
            "service.remote.ssl.ca.location = ca.pem",
            "service.remote.username = gateway",
            "service.remote.password = of the gateway",
        ]
    )
    with ExitStack() as stack:
        yield lambda target: stack.enter_context(_started(target, shared, tmp_path))


@contextmanager
def _started(target: str, shared: str, folder: Path) -> Iterator[Service]:
    port = free_port()
    file = folder / f"{target}-{port}.properties"
    file.write_text(f"{shared}\nservice.targets = {target}\nservice.port = {port}\n")
    program = Path(sys.executable).with_name("srm-service")
    log = (folder / f"{target}-{port}.log").open("wb")
    process = subprocess.Popen([program, "--config", file], stderr=log, env={**os.environ})
    with (
        log,
        httpx.Client(
            base_url=f"https://{LOOPBACK}:{port}",
            verify=_trusting(folder),
            timeout=60,
            trust_env=False,
        ) as client,
    ):
        try:
            yield Service(target, port, process, client)
        finally:
            process.kill()
            process.wait(60)


def _trusting(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=folder / "ca.pem")


def test_any_of_three_services_answers_for_all_while_one_hangs_and_one_dies(
    start: Starter,
) -> None:
    services = {target: start(target) for target in TARGETS}
    p, b, c = services.values()
    for each in services.values():
        each.await_flows("B->P", "P->B", "P->C")
    assert p.get("/v2/flows/P/C")["target"] == "C"
    c.get("/v2/flows/P/B/topics")  # B has looked, and C knows
    assert p.get("/v2/cluster-info/C")["incoming"] == ["P->C"]

    b.process.send_signal(signal.SIGSTOP)  # connections are accepted, and never answered
    p.await_flows("B->P", "P->C", B=f"no answer within {LIMIT_S} s")
    p.get("/v2/flows/P/B", 503)
    p.get("/v2/flows/P/C")

    c.stop(signal.SIGKILL)
    p.await_flows("B->P", B="", C="")

    b.process.send_signal(signal.SIGCONT)
    start("C")
    p.await_flows("B->P", "P->B", "P->C")

    b.stop(signal.SIGTERM)
    p.await_flows("B->P", "P->C", B="no service that watches B is announced")
