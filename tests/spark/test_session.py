"""What a session is given, and that an active one is shared."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession
from tests.waiting import eventually

from srm.errors import UnavailableError, UsageError
from srm.spark import REMOTE
from srm.spark.session import file_settings, settings, spark_session
from srm_lab.stack.process import free_port

pytestmark = pytest.mark.spark


def test_a_program_of_its_own_runs_on_two_local_cores_reachable_from_here_only():
    chosen = settings(None, {})

    assert chosen["spark.master"] == "local[2]"
    assert chosen["spark.driver.bindAddress"] == "127.0.0.1"
    assert chosen["spark.ui.enabled"] == "false"


def test_what_the_caller_says_wins():
    chosen = settings("local[4]", {"spark.ui.enabled": "true"})

    assert (chosen["spark.master"], chosen["spark.ui.enabled"]) == ("local[4]", "true")


def test_a_driver_of_a_cluster_is_not_limited_to_this_machine():
    chosen = settings(None, {"spark.master": "spark://host:7077"})

    assert chosen["spark.master"] == "spark://host:7077"
    assert "spark.driver.host" not in chosen


def test_the_master_of_the_command_wins_over_that_of_the_file():
    file = {"spark.master": "yarn", "spark.executor.memory": "512m"}

    assert file_settings(file) == file
    assert file_settings(file, "spark://m:7077") == {"spark.executor.memory": "512m"}


@pytest.mark.parametrize("master", ["nonsense", "local[x]", "spark:/host:7077", "spark://"])
def test_a_master_that_spark_does_not_know_is_refused_before_it_starts(master: str):
    with pytest.raises(UsageError, match="Spark has no master"):
        file_settings({}, master)


def test_a_local_spark_has_the_files_and_the_python_of_this_machine():
    workers = {"spark.archives": "e.tar.gz#e", "spark.pyspark.python": "./e/bin/python"}
    file = {"spark.driver.memory": "1g", **workers}

    assert file_settings(file) == {"spark.driver.memory": "1g"}
    assert file_settings(file, "yarn") == file


def test_under_spark_submit_its_settings_stay_and_the_master_is_not_touched():
    given = {"spark.master": "spark://host:7077", "spark.ui.enabled": "true"}

    chosen = settings("local[4]", {}, given)

    assert not chosen.keys() & {
        "spark.master",
        "spark.ui.enabled",
        "spark.driver.memory",
        "spark.driver.host",
    }


def test_a_program_started_by_spark_submit_knows_what_that_was_given(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("from srm.spark.session import submit_options; print(submit_options())")
    master = "spark://host:7077"
    command = [Path(sys.executable).with_name("spark-submit"), "--master", master, program]

    environ = {**os.environ, "PYSPARK_PYTHON": sys.executable}

    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)

    assert f"'spark.master': '{master}'" in printed.stdout


def test_an_active_session_is_used_and_left_running(spark):
    with spark_session("another") as shared:
        assert shared is spark

    assert spark.range(3).count() == 3


def test_tasks_run_in_this_interpreter_and_find_srm(spark):
    def where(_: int) -> tuple[str, str]:
        import srm  # noqa: PLC0415 - in the worker

        return sys.executable, srm.__file__

    import srm  # noqa: PLC0415 - beside the one in the worker

    assert spark.sparkContext.parallelize([1], 1).map(where).collect() == [
        (sys.executable, srm.__file__)
    ]


@pytest.mark.parametrize("remote", ["spark.example:15002", "sc://", "sc://host:port"])
def test_what_names_no_connect_server_is_refused(remote, monkeypatch):
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)

    with (
        pytest.raises(UsageError, match="sc://host:port"),
        spark_session("another", remote=remote),
    ):
        pass


def test_a_connect_server_that_is_down_is_not_asked_for_ten_minutes(monkeypatch):
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setenv(REMOTE, f"sc://127.0.0.1:{free_port()}/;token=secret")

    with (
        pytest.raises(UnavailableError, match="does not answer") as caught,
        spark_session("another"),
    ):
        pass
    assert "secret" not in str(caught.value)


def test_ctrl_c_while_spark_starts_leaves_no_java() -> None:
    program = (
        "from srm.spark.session import spark_context\n"
        "print('starts', flush=True)\n"
        "with spark_context('interrupted'):\n"
        "    print('runs', flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"starts\n"
        us = psutil.Process(started.pid)
        eventually(lambda: "java" in {child.name() for child in us.children()}, "Java starts")
        children = us.children(recursive=True)
        started.send_signal(signal.SIGINT)
        assert started.wait(120) != 0
    eventually(lambda: not any(map(_lives, children)), "Java ends")


def _lives(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="gives the host another name"
)
def test_a_local_spark_starts_where_the_name_of_the_host_has_no_address() -> None:
    program = (
        "from srm.spark.session import spark_context\n"
        "with spark_context('named') as spark:\n"
        "    print(spark.parallelize([7]).collect())\n"
    )
    rename = ["unshare", "--uts", "sh", "-c", 'hostname nowhere.invalid && exec "$@"', "-"]
    environ = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}

    done = subprocess.run(
        [*rename, sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=environ,
    )

    assert (done.returncode, done.stdout) == (0, "[7]\n"), done.stderr[-2000:]
