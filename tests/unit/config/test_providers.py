"""Logins of clusters that are kept in Airflow's connections."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from srm.config import properties
from srm.config.loader import load_config
from srm.config.properties import CONNECTIONS_VARIABLE
from srm.errors import ConfigError

CONFIG = """\
clusters = P, B
config.providers = airflow
P.airflow.connection = kafka_p
P.security.protocol = SASL_SSL
B.bootstrap.servers = b:9092
B.sasl.password = ${airflow:vault:password}
P->B.enabled = true
"""
KEPT: dict[str, dict[str, str]] = {
    "kafka_p": {
        "bootstrap.servers": "p:9092",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.password": "s3cret",
        "group.id": "of-somebody-else",
        "error_cb": "some.function",
    },
    "vault": {"password": "h1dden"},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "srm.properties"
    path.write_text(CONFIG)
    return path


def read(name: str) -> Mapping[str, str]:
    return KEPT[name]


def test_a_cluster_takes_address_and_login_of_its_connection_and_nothing_else(file: Path) -> None:
    config = load_config(file, connections=read)

    p = config.client("P", "consumer")
    assert (p["bootstrap.servers"], p["sasl.password"]) == ("p:9092", "s3cret")
    assert p["security.protocol"] == "SASL_SSL", "a later line overrides it"
    assert "group.id" not in p
    assert config.client("B", "admin")["sasl.password"] == "h1dden"
    assert "s3cret" not in repr(config)


def test_a_process_that_a_task_has_started_finds_connections_in_its_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(properties, "_default_connections", [properties.read_given_connection])
    monkeypatch.setenv(CONNECTIONS_VARIABLE, json.dumps(KEPT))

    assert load_config(file).client("P", "admin")["sasl.password"] == "s3cret"


def test_elsewhere_the_line_with_the_connection_is_named(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(properties, "_default_connections", [properties.read_given_connection])
    monkeypatch.delenv(CONNECTIONS_VARIABLE, raising=False)
    file.write_text(CONFIG.replace("${airflow:vault:password}", "x"))

    with pytest.raises(ConfigError, match=r"P\.airflow\.connection: connection kafka_p is kept in"):
        load_config(file)


def test_a_field_that_the_connection_lacks_is_named(file: Path) -> None:
    file.write_text(CONFIG.replace("vault:password", "vault:token"))

    with pytest.raises(ConfigError, match=r"B\.sasl\.password: connection vault has no field"):
        load_config(file, connections=read)
