"""Command lines of the DAGs' Spark applications, for each kind of connection, word by word."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from srm.errors import ConfigError
from srm_airflow.operators import ReplicationOperator
from srm_airflow.settings import spark_job
from srm_airflow.spark_jobs import SparkJobOperator

pytestmark = pytest.mark.airflow

CLUSTERS = """\
clusters = P, B
P.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:2
P->B.enabled = true
"""
ENVIRONMENT = """\
spark.executor.memory = 512m
spark.files = /etc/srm/ca.pem
spark.archives = /srv/environment.tar.gz#environment
spark.pyspark.python = ./environment/bin/python
"""
IMAGE = "spark.kubernetes.container.image = registry.example.com/srm:1\n"
K8S = "k8s://https://kubernetes.default.svc"
JOBS = "local:///opt/srm/spark_jobs"


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("SRM_SPARK_JOBS", JOBS)

    def connect(host: str, **extra: str) -> None:
        uri = {"conn_type": "spark", "host": host, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SRM_SPARK", json.dumps(uri))

    return connect


@pytest.fixture
def config(tmp_path: Path) -> Any:
    def write(*lines: str) -> str:
        file = tmp_path / "srm.properties"
        file.write_text(CLUSTERS + "".join(lines))
        return str(file)

    return write


def command(path: str) -> list[str]:
    operator = ReplicationOperator(task_id="replicator", flows=["P->B"], config_path=path)
    return operator._command()


def program(path: str) -> list[str]:
    return [f"{JOBS}/replicator.py", "--config", path, "--flow", "P->B"]


def test_local(connection: Any, config: Any) -> None:
    connection("local[4]")
    path = config()

    assert command(path) == [
        *("spark-submit", "--master", "local[4]", "--name", "srm-replicator"),
        *program(path),
    ]


def test_standalone_with_a_packed_environment(connection: Any, config: Any) -> None:
    connection("spark://m:7077")
    path = config(ENVIRONMENT)

    assert command(path) == [
        *("spark-submit", "--master", "spark://m:7077"),
        *("--conf", "spark.executor.memory=512m"),
        *("--conf", "spark.pyspark.python=./environment/bin/python"),
        *("--conf", f"spark.pyspark.driver.python={sys.executable}"),
        *("--files", "/etc/srm/ca.pem", "--archives", "/srv/environment.tar.gz#environment"),
        *("--name", "srm-replicator"),
        *program(path),
    ]


def test_yarn_with_the_driver_on_the_worker(connection: Any, config: Any) -> None:
    connection("yarn", queue="q")
    path = config("spark.executor.memory = 512m\n")

    assert command(path) == [
        *("spark-submit", "--master", "yarn", "--conf", "spark.executor.memory=512m"),
        *("--name", "srm-replicator", "--queue", "q"),
        *program(path),
    ]


def test_yarn_with_the_driver_in_the_cluster(connection: Any, config: Any) -> None:
    connection("yarn", **{"deploy-mode": "cluster", "queue": "q"})
    path = config(ENVIRONMENT)

    assert command(path) == [
        *("spark-submit", "--master", "yarn"),
        *("--conf", "spark.executor.memory=512m"),
        *("--conf", "spark.pyspark.python=./environment/bin/python"),
        *("--files", f"/etc/srm/ca.pem,{path}"),
        *("--archives", "/srv/environment.tar.gz#environment"),
        *("--name", "srm-replicator", "--queue", "q", "--deploy-mode", "cluster"),
        *program("srm.properties"),
    ]


def test_kubernetes_with_the_driver_in_the_cluster(connection: Any, config: Any) -> None:
    connection(K8S, **{"deploy-mode": "cluster", "namespace": "srm"})
    path = config(IMAGE, "spark.kubernetes.file.upload.path = s3a://bucket/srm\n")

    assert command(path) == [
        *("spark-submit", "--master", K8S),
        *("--conf", "spark.kubernetes.container.image=registry.example.com/srm:1"),
        *("--conf", "spark.kubernetes.file.upload.path=s3a://bucket/srm"),
        *("--conf", "spark.kubernetes.namespace=srm"),
        *("--files", path, "--name", "srm-replicator", "--deploy-mode", "cluster"),
        *program("srm.properties"),
    ]


def test_kubernetes_without_an_image_fails_before_anything_is_submitted(
    connection: Any, config: Any
) -> None:
    connection(K8S, **{"deploy-mode": "cluster"})

    with pytest.raises(ConfigError, match=r"set spark\.kubernetes\.container\.image"):
        command(config())


def test_the_deploy_mode_of_the_file_holds_where_the_connection_has_none(
    connection: Any, config: Any
) -> None:
    connection("yarn")
    path = config("spark.submit.deployMode = cluster\n")

    assert command(path) == [
        *("spark-submit", "--master", "yarn", "--files", path, "--name", "srm-replicator"),
        *("--deploy-mode", "cluster"),
        *program("srm.properties"),
    ]


def test_jobs_of_dags_are_given_the_same(connection: Any, config: Any) -> None:
    connection("yarn", **{"deploy-mode": "cluster"})
    path = config(ENVIRONMENT)
    job = SparkJobOperator(
        task_id="job",
        name="srm-metrics",
        application=spark_job("metrics"),
        application_args=["--config", path],
    )

    made = job._get_hook()._build_spark_submit_command(job.application)

    assert made == [
        *("spark-submit", "--master", "yarn"),
        *("--conf", "spark.executor.memory=512m"),
        *("--conf", "spark.pyspark.python=./environment/bin/python"),
        *("--files", f"/etc/srm/ca.pem,{path}"),
        *("--archives", "/srv/environment.tar.gz#environment"),
        *("--name", "srm-metrics", "--deploy-mode", "cluster"),
        *(f"{JOBS}/metrics.py", "--config", "srm.properties"),
    ]


def test_jobs_on_a_connect_server_are_a_process_here(connection: Any, config: Any) -> None:
    connection("yarn")
    path = config(ENVIRONMENT)
    job = SparkJobOperator(
        task_id="job",
        name="srm-metrics",
        application=spark_job("metrics"),
        application_args=["--config", path],
    )

    assert job._command() == [sys.executable, f"{JOBS}/metrics.py", "--config", path]


@pytest.mark.parametrize("folder", ["s3a://bucket/srm", "hdfs:///apps/srm/", "/opt/srm/spark_jobs"])
def test_places_of_applications_keep_their_slashes(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SRM_SPARK_JOBS", folder)

    assert spark_job("replicator") == f"{folder.rstrip('/')}/replicator.py"
