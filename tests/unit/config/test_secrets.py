"""No text that is made of settings shows a secret; whatever needs one still gets it."""

from __future__ import annotations

import json
import logging
import pickle
from dataclasses import asdict
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError
from typer.testing import CliRunner

from srm.cli.flows.control import ControlOptions, find_target
from srm.cli.main import app
from srm.config.lines import resolve_client
from srm.config.loader import build_config, read_settings
from srm.config.model import ClusterClients, Config
from srm.config.values import HIDDEN, ClientProperties, is_secret
from srm.domain.names.topics import Flow
from srm.errors import ConfigError, SrmError, UsageError
from srm.kafka.admin.clients import Clients
from srm.kafka.wire.security import read_security
from srm.replication.copy.slot import SlotSpec
from srm.spark.slot import SlotTask
from srm.spark.verification import BothClusters

PLANTED = "hunter2"
FLOW = Flow("P", "B")
FILE = f"""
clusters = P, B
P.bootstrap.servers = p:9092
B.bootstrap.servers = b:9092
P->B.enabled = true
security.protocol = SASL_SSL
sasl.mechanism = PLAIN
sasl.jaas.config = a.PlainLoginModule required username="srm" password="{PLANTED}-jaas";
ssl.key.password = {PLANTED}-key
P->B.consumer.sasl.password = {PLANTED}-consumer
B.producer.ssl.keystore.password = {PLANTED}-store
failover.webhook.url = https://hooks.example.org/x?token={PLANTED}-token
failover.webhook.secret = {PLANTED}-webhook
stack.airflow.password = {PLANTED}-stack
"""
SECRET_KEYS = (
    "failover.webhook.secret",
    "sasl.password",
    "sasl.jaas.config",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.config",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.truststore.password",
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "srm.properties"
    path.write_text(FILE)
    return path


@pytest.fixture
def config(file: Path) -> Config:
    return build_config(read_settings(file))


def spec(config: Config) -> SlotSpec:
    sides = (config.cluster_clients(alias, FLOW) for alias in ("P", "B"))
    return SlotSpec(config.flow(FLOW), "0", *sides)


@pytest.mark.parametrize("prefix", ["", "P.", "P->B.source.consumer."])
def test_every_key_that_holds_a_secret_is_known_as_one_under_any_prefix(prefix):
    assert [key for key in SECRET_KEYS if not is_secret(prefix + key)] == []


@pytest.mark.parametrize("key", ["sasl.username", "ssl.key.location", "group.id", "topics"])
def test_other_keys_are_no_secrets(key):
    assert not is_secret(key)


def test_no_object_that_carries_settings_shows_a_secret(file, config, caplog):
    settings = read_settings(file)
    clients = config.cluster_clients("P", FLOW)
    objects = [
        settings,
        settings.settings,
        resolve_client("P", "consumer", settings.settings, FLOW),
        config,
        config.clients,
        clients,
        BothClusters.of(config, FLOW),
        spec(config),
        SlotTask(spec(config), logging.INFO),
        Clients("P", clients),
        read_security("P", clients.consumer),
        ControlOptions(props=[f"sasl.password={PLANTED}"]),
    ]

    texts = [form(thing) for thing in objects for form in (repr, str, "{}".format)]
    with caplog.at_level(logging.INFO):
        for thing in objects:
            logging.getLogger("srm").info("%s %r", thing, thing)

    assert clients.consumer["sasl.password"] == f"{PLANTED}-consumer"
    assert not [text for text in texts if PLANTED in text]
    assert HIDDEN in repr(spec(config))
    assert PLANTED not in caplog.text


def test_settings_do_not_become_json_by_accident(config):
    carried = asdict(spec(config))

    with pytest.raises(TypeError):
        json.dumps(dict(carried["source"]))
    with pytest.raises(PydanticSchemaGenerationError):
        TypeAdapter(SlotSpec)
    assert PLANTED not in json.dumps(carried, default=str)


def test_a_slots_settings_reach_its_worker_whole(config):
    sent = pickle.loads(pickle.dumps(spec(config)))  # noqa: S301 - our own

    assert sent == spec(config)
    assert sent.source.consumer["sasl.password"] == f"{PLANTED}-consumer"
    assert sent.target.producer["ssl.keystore.password"] == f"{PLANTED}-store"


def test_all_kinds_of_clients_may_be_made_alike():
    alike = ClusterClients.alike({"client.id": "x"})

    assert alike.admin == alike.consumer == alike.producer == ClientProperties({"client.id": "x"})


@pytest.mark.parametrize(
    "line",
    [
        f"P.sasl.jaas.config = {PLANTED}",
        f"P.sasl.jaas.config = a.Unknown password={PLANTED} required;",
        f"P.sasl.pasword = {PLANTED}",
    ],
)
def test_an_error_about_a_secret_does_not_repeat_it(tmp_path, line):
    file = tmp_path / "srm.properties"
    file.write_text(f"clusters = P, B\nP.bootstrap.servers = p:1\n{line}\n")

    with pytest.raises(ConfigError) as refused:
        build_config(read_settings(file))

    assert PLANTED not in str(refused.value)


def test_an_error_about_a_token_or_an_option_does_not_repeat_it():
    token = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": f"{PLANTED}",
    }
    options = ControlOptions(
        source=FLOW.source,
        target=FLOW.target,
        bootstrap_servers="b:1",
        props=[f"sasl.password {PLANTED}"],
    )
    said: list[SrmError] = []

    with pytest.raises(ConfigError) as refused:
        read_security("P", token)
    said.append(refused.value)
    with pytest.raises(UsageError) as unusable:
        find_target(options)
    said.append(unusable.value)

    assert not [error for error in said if PLANTED in str(error)]


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize(
    "command",
    [["check"], ["explain", "sasl.password", "--flow", "P->B"], ["explain", "sasl.jaas.config"]],
)
def test_no_command_prints_a_secret(file, command, form):
    result = CliRunner().invoke(app, ["config", *command, *form, "--config", str(file)])

    assert result.exception is None
    assert PLANTED not in result.output


@pytest.mark.parametrize(
    "lines",
    [
        "ssl.keystore.key = -----BEGIN PRIVATE KEY-----\nMIIEvQIBADANhunter2w0BAQEFAASC\nhunter2=",
        "ssl.keystore.key = -----BEGIN PRIVATE KEY----- \\\nMIIEvQhunter2\nhunter2==\n-----END",
        "service.remote.password =\n  hunter2",
        "sasl.oauthbearer.config = a\neyJhbGciOiJI.eyJzdWIi.hunter2",
        'sasl.jaas.config = a.PlainLoginModule\n  password="hunter2";',
        "P -> B.consumer.sasl.password = hunter2",
        "P.bootstrap.servers = https://me:hunter2@p:9092",
        "P.bootstrap.servers = https://me:hunter2,or@p:9092",
        "P.bootstrap.servers = hunter2@b:9092\nB.bootstrap.servers = hunter2@b:9092",
    ],
)
def test_what_is_wrong_with_a_line_is_told_without_what_may_be_a_secret(
    tmp_path: Path, lines: str
) -> None:
    """A forgotten backslash makes keys of what goes on from the line before."""
    path = tmp_path / "srm.properties"
    path.write_text(f"clusters = P, B\nP.bootstrap.servers = p:1\n{lines}\n", "utf-8")

    with pytest.raises(ConfigError) as refused:
        read_and_build(path)

    assert PLANTED not in str(refused.value)
    assert "MII" not in str(refused.value)
    assert str(path) in str(refused.value)


def read_and_build(path: Path) -> Config:
    return build_config(read_settings(path))
