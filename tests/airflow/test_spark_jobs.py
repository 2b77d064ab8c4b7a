"""Where the Spark jobs of DAGs run: on a warm Connect server where a connection names one."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from tests.waiting import eventually

from srm_airflow.compat import AirflowException
from srm_airflow.spark_jobs import SparkJobOperator, connect_url

pytestmark = pytest.mark.airflow

CONNECTION = "AIRFLOW_CONN_SRM_SPARK_CONNECT"
SERVER = {"conn_type": "spark_connect", "host": "spark.example", "port": 15002, "password": "t0k"}


def job(tmp_path: Path, *lines: str, arguments: list[str] | None = None) -> SparkJobOperator:
    """A job that is a script of these lines."""
    script = tmp_path / "job.py"
    script.write_text("\n".join(lines))
    return SparkJobOperator(
        task_id="job", name="srm-job", application=str(script), application_args=arguments or []
    )


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONNECTION, json.dumps(SERVER))


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is left to spark-submit."""
    left: list[str] = []

    def execute(self: SparkSubmitOperator, context: Any) -> None:
        del context
        left.append(self.application)

    monkeypatch.setattr(SparkSubmitOperator, "execute", execute)
    return left


def test_without_a_connect_server_a_job_is_submitted(tmp_path: Path, submitted: list[str]) -> None:
    job(tmp_path).execute({})

    assert submitted == [str(tmp_path / "job.py")]


@pytest.mark.usefixtures("server")
def test_with_one_the_job_is_a_process_that_is_told_its_address_in_the_environment(
    tmp_path: Path, submitted: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    lines = ("import os, sys", "print(os.environ['SPARK_REMOTE'], *sys.argv[1:])")
    made = job(tmp_path, *lines, arguments=["--flow", "P->B"])

    with caplog.at_level(logging.INFO, "srm_airflow.spark_jobs"):
        made.execute({})

    assert connect_url() == "sc://spark.example:15002/;token=t0k"
    assert f"{connect_url()} --flow P->B" in caplog.text
    assert submitted == []


@pytest.mark.usefixtures("server")
def test_a_job_that_fails_fails_its_task(tmp_path: Path) -> None:
    with pytest.raises(AirflowException, match="srm-job has failed with exit code 6"):
        job(tmp_path, "import sys", "sys.exit(6)").execute({})


@pytest.mark.usefixtures("server")
def test_a_job_whose_task_is_cleared_ends(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    made = job(
        tmp_path, "import pathlib, time", f"pathlib.Path({str(begun)!r}).touch()", "time.sleep(300)"
    )
    failures: list[Exception] = []

    def run() -> None:
        try:
            made.execute({})
        except AirflowException as error:
            failures.append(error)

    running = threading.Thread(target=run)
    running.start()
    eventually(begun.exists, "the job has begun")
    made.on_kill()
    running.join(60)

    assert not running.is_alive()
    assert "exit code -15" in str(failures[0])
