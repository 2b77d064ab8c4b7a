"""A Spark Connect server of its own, as the pip package of Spark brings it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import eventually

from srm.spark import WORKER_DAEMON
from srm_lab.stack.process import LOOPBACK, answers, free_port
from srm_lab.stack.spark import check_spark

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Start a server on two cores, give its address and end it; its log is in the folder."""
    port = free_port()
    home = check_spark().home
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.python.daemon.module": WORKER_DAEMON,
    }
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
    command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    log = folder / "connect.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*command, "--class", _SERVER, "spark-internal"],
            env=environment, stdout=output, stderr=output, cwd=folder,
        )  # fmt: skip
    try:
        eventually(lambda: _answers(port, server), f"Spark Connect answers, see {log}")
        yield f"sc://{LOOPBACK}:{port}"
    finally:
        server.terminate()
        server.wait(60)


def _answers(port: int, server: subprocess.Popen[bytes]) -> bool:
    if server.poll() is not None:
        raise AssertionError("the Spark Connect server has ended")
    return answers(port)
