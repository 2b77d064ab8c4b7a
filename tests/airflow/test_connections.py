"""Logins of clusters from Airflow's connections: read in tasks alone, and shown nowhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from srm.config.loader import load_config
from srm.config.properties import CONNECTIONS_VARIABLE, read_connections_by, read_given_connection
from srm.errors import ConfigError
from srm_airflow import operators, settings
from srm_airflow.compat import AirflowFailException
from srm_airflow.connections import given_to_processes, read_connection
from srm_airflow.operators import ReplicationOperator
from srm_airflow.spark_jobs import SparkJobOperator

pytestmark = pytest.mark.airflow

CONFIG = """\
clusters = P, B
P.airflow.connection = kafka_p
B.airflow.connection = kafka_b
P->B.enabled = true
"""
PASSWORD = "never-to-be-seen"
EXTRA = {"security.protocol": "SASL_SSL", "sasl.username": "srm", "sasl.password": PASSWORD}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A properties file whose logins are in connections; the secrets backend is the environment."""
    read_connections_by(read_connection)
    path = tmp_path / "srm.properties"
    path.write_text(CONFIG)
    monkeypatch.setenv("SRM_CONFIG", str(path))
    for alias in ("p", "b"):
        extra = {"bootstrap.servers": f"{alias}:9092", **EXTRA}
        made = {"conn_type": "kafka", "extra": extra}
        monkeypatch.setenv(f"AIRFLOW_CONN_KAFKA_{alias.upper()}", json.dumps(made))
    return path


def test_a_task_logs_in_as_the_connection_of_the_cluster_says(file: Path) -> None:
    admin = load_config(file).client("P", "admin")

    assert (admin["bootstrap.servers"], admin["sasl.password"]) == ("p:9092", PASSWORD)


@pytest.mark.usefixtures("file")
def test_dags_are_built_without_reading_a_connection() -> None:
    read_connections_by(lambda name: pytest.fail(f"read {name}"))
    try:
        config = settings.load()
    finally:
        read_connections_by(read_connection)

    assert [str(flow) for flow in config.flows] == ["P->B"]
    assert PASSWORD not in repr(config)


def test_a_missing_connection_is_named_with_the_line_that_needs_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_KAFKA_P")

    with pytest.raises(
        ConfigError, match=r"airflow\.connection: Airflow has no connection kafka_p"
    ):
        load_config(file)


def test_the_driver_gets_logins_in_its_environment_and_not_in_its_command(file: Path) -> None:
    code = (
        "import sys; from srm.config.loader import load_config\n"
        "print(load_config(sys.argv[1]).client('P', 'consumer')['sasl.password'])"
    )
    with given_to_processes(file):
        command = ReplicationOperator(
            task_id="replicator", flows=["P->B"], config_path=str(file)
        )._command()
        shown = subprocess.run(
            [sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True
        ).stdout

    assert shown.strip() == PASSWORD
    assert PASSWORD not in " ".join(command)
    assert CONNECTIONS_VARIABLE not in os.environ


def test_a_driver_on_another_host_is_refused_as_it_would_have_no_logins(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SRM_SPARK", json.dumps(connection))
    task = ReplicationOperator(task_id="replicator", flows=["P->B"], config_path=str(file))

    job = SparkJobOperator(task_id="job", name="job", application_args=["--config", str(file)])

    for submit in (task._command, job._get_hook):
        with given_to_processes(file), pytest.raises(ConfigError, match="cluster mode"):
            submit()


@pytest.mark.parametrize("module", ["triggers", "apps", "operators"])
def test_each_process_of_airflow_can_read_connections(module: str) -> None:
    """A triggerer imports triggers alone, an API server the service."""
    program = (
        f"import srm_airflow.{module}, sys; from srm.config import properties;"
        "sys.exit(properties.read_given_connection in properties._default_connections)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_driver_that_would_end_with_the_pod_of_its_task_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_IS_K8S_EXECUTOR_POD", "True")
    task = ReplicationOperator(task_id="replicator", flows=["P->B"], config_path=str(file))

    with pytest.raises(AirflowFailException, match="would end with the pod"):
        task._command()


def test_neither_rendered_fields_nor_the_trigger_have_secrets(file: Path) -> None:
    """Both are stored in Airflow's database."""
    task = ReplicationOperator(task_id="replicator", flows=["P->B"], config_path=str(file))
    fields: Any = [getattr(task, name) for name in task.template_fields]
    trigger = operators.ReplicatorTrigger(config_path=str(file), flows=["P->B"], application={})

    assert PASSWORD not in repr((fields, trigger.serialize()))


@pytest.mark.usefixtures("file")
def test_secrets_of_connections_are_masked_in_logs() -> None:
    from airflow.sdk.log import redact  # noqa: PLC0415 - after conftest

    read_connection("kafka_p")

    assert PASSWORD not in str(redact(f"login with {PASSWORD}"))


def test_without_the_plugin_connections_come_from_the_environment() -> None:
    with pytest.raises(ConfigError, match="is kept in Airflow"):
        read_given_connection("kafka_p")
