"""Nothing that the service says, wherever it is asked, is a secret of its configuration."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.service_views import look_at, still_views
from tests.unit.engine.copying_records import CopiedTopic

from srm.config.loader import load_config
from srm.config.model import Config
from srm.errors import SrmError, UnavailableError
from srm.kafka.cluster import KafkaCluster
from srm.service.access.access import User
from srm.service.access.logins import access_of
from srm.service.access.passwords import line
from srm.service.app import create_app
from srm.service.routes.actions import Actions

PLANTED = "hunter2"
FILE = f"""
clusters = P, B
P.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:2
P->B.enabled = true
topics = Topic
security.protocol = SASL_SSL
sasl.mechanism = SCRAM-SHA-512
sasl.jaas.config = a.ScramLoginModule required username="srm" password="{PLANTED}-jaas";
ssl.key.password = {PLANTED}-key
P->B.consumer.sasl.password = {PLANTED}-consumer
B.producer.ssl.keystore.password = {PLANTED}-store
failover.webhook.url = https://hooks.example.org/x?token={PLANTED}-token
failover.webhook.secret = {PLANTED}-webhook
stack.airflow.password = {PLANTED}-stack
service.ssl.key.password = {PLANTED}-tls
service.remote.username = gate
service.remote.password = {PLANTED}-remote
service.remote.ssl.key.password = {PLANTED}-remote-key
service.remote.hosts = 127.0.0.1
service.remote.querying.enabled = true
service.advertise = true
"""
NAMES = {"source": "P", "target": "B", "topic": "Topic", "group": "audit", "list": "topics"}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "srm.properties"
    path.write_text(FILE, "utf-8")
    return load_config(path)


def client_error(config: Config, alias: str) -> str:
    """What a client says that cannot connect with all these settings."""
    with (
        KafkaCluster(alias, config.cluster_clients(alias), 0.3) as cluster,
        pytest.raises(SrmError) as failed,
    ):
        cluster.cluster_id()
    return str(failed.value)


def filled(path: str, operation: dict[str, Any]) -> str:
    names = {each["name"]: "byte-rate" for each in operation.get("parameters", ())}
    return path.format_map({**names, **NAMES})


def everything(client: TestClient) -> list[str]:
    """Every answer of every route: asked rightly, wrongly, and of a cluster that fails."""
    document = client.get("/openapi.json")
    found = [document.text, client.get("/health").text, client.get("/docs").text]
    for path, operations in document.json()["paths"].items():
        for method, operation in operations.items():
            where = filled(path, operation)
            found += [
                client.request(method, where).text,
                client.request(method, f"{where}?limit=x&offset=-1&search={'x' * 300}").text,
                client.request(method, where, json={"action": "stop", "add": ["x"]}).text,
                client.request(method, where, json={"action": "{", "add": ["("]}).text,
                client.request(method, where.replace("B", "Z")).text,
                client.request("DELETE", where).text,
            ]
    return found


def test_no_answer_has_a_secret(
    config: Config, world: CopiedTopic, caplog: pytest.LogCaptureFixture
) -> None:
    assert PLANTED in str(dict(config.client("B", "admin")))
    look = replace(look_at(world.forward), error=client_error(config, "B"))
    views = still_views(look, config=config)

    def fails(alias: str) -> Any:
        raise UnavailableError(client_error(config, alias))

    def access() -> User:
        return User("olga", frozenset({"reader", "operator"}))

    client = TestClient(
        create_app(views, access, Actions(config, fails)), raise_server_exceptions=False
    )

    with caplog.at_level(logging.DEBUG):
        answers = everything(client)

    assert len(answers) > 100
    assert not [answer for answer in answers if PLANTED in answer]
    assert PLANTED not in caplog.text


def test_a_users_password_and_its_hash_are_told_to_nobody(
    config: Config, world: CopiedTopic, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written = line("alice", f"{PLANTED}-alice")
    (tmp_path / "users").write_text(written, "utf-8")
    settings = replace(
        config.service,
        access=replace(config.service.access, auth="basic", users_location=tmp_path / "users"),
    )
    app = create_app(still_views(look_at(world.forward)), access_of(settings, "127.0.0.1"))
    client = TestClient(app, raise_server_exceptions=False)

    with caplog.at_level(logging.DEBUG):
        answers = [
            client.get("/v2/flows", auth=("alice", password)).text
            for password in (f"{PLANTED}-alice", f"{PLANTED}-guess", f"{PLANTED}-again")
        ]

    for text in (*answers, caplog.text, repr(settings), repr(config)):
        assert PLANTED not in text
        assert written[-20:] not in text
