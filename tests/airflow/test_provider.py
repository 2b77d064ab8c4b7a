"""What the provider adds to an Airflow: a connection type, a command, links."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers_manager import ProvidersManager

from srm.config.loader import load_config
from srm_airflow import connections  # noqa: F401 - has this process read connections
from srm_airflow.additions import RunLink
from srm_airflow.clusters import KafkaClusterHook
from srm_airflow.operators import MoveWaitOperator
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.stack.process import free_port

pytestmark = pytest.mark.airflow

CONNECTION = "AIRFLOW_CONN_CLUSTER_P"


def connect(monkeypatch: pytest.MonkeyPatch, **extra: Any) -> None:
    monkeypatch.setenv(CONNECTION, json.dumps({"conn_type": "srm_kafka", "extra": extra}))


def test_the_form_of_a_cluster_has_its_fields_without_an_import_of_its_hook() -> None:
    widgets = ProvidersManager().connection_form_widgets

    fields = {name: one for name, one in widgets.items() if name.startswith("extra__srm_kafka__")}
    assert "extra__srm_kafka__bootstrap.servers" in fields
    hidden = [one.field_name for one in fields.values() if one.is_sensitive]
    assert hidden == ["sasl.password"]


@pytest.mark.kafka
def test_the_test_of_the_form_logs_in_to_the_cluster(
    clusters: Mapping[str, KafkaBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, **{"bootstrap.servers": clusters["P"].bootstrap})

    worked, message = KafkaClusterHook("cluster_p").test_connection()

    assert (worked, message[:17]) == (True, "1 broker, Kafka 4")


def test_the_test_of_the_form_says_in_one_line_why_it_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect(monkeypatch, **{"bootstrap.servers": f"127.0.0.1:{free_port()}"})

    worked, message = KafkaClusterHook("cluster_p").test_connection()

    assert not worked
    assert "refused" in message
    assert "\n" not in message


def test_a_properties_file_takes_the_login_of_such_a_connection(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connect(monkeypatch, **{"bootstrap.servers": "p:9092", "sasl.username": "srm"})
    file = tmp_path / "srm.properties"
    file.write_text("clusters = P\nP.airflow.connection = cluster_p\n")

    admin = load_config(file).client("P", "admin")

    assert (admin["bootstrap.servers"], admin["sasl.username"]) == ("p:9092", "srm")


def test_airflow_srm_runs_a_command_with_connections_of_airflow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "srm.properties"
    file.write_text(
        "clusters = P, B\nP.airflow.connection = cluster_p\nB.bootstrap.servers = b:9092\n"
        "P->B.enabled = true\n"
    )
    connect(monkeypatch, **{"bootstrap.servers": "p:9092"})
    monkeypatch.setenv("SRM_CONFIG", str(file))

    command = [sys.executable, "-m", "airflow", "srm", "config", "check", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout[done.stdout.index("{") :])


def test_a_task_links_to_the_page_of_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.org/a/")
    task = MoveWaitOperator(task_id="wait", move={}, config_path="srm.properties")
    key: Any = SimpleNamespace(dag_id="srm_failover.P.B", run_id="manual__1+0", task_id="wait")
    [link] = task.operator_extra_links

    assert isinstance(link, RunLink)
    assert link.get_link(task, ti_key=key) == (
        "https://airflow.example.org/a/srm/ui/runs/srm_failover.P.B/manual__1%2B0?task=wait"
    )
