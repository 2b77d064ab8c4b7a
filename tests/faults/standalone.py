"""A Spark standalone cluster from the pip package: one master, and workers to be killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
from tests.conftest import owner
from tests.waiting import eventually

from srm_lab.stack.process import LOOPBACK, ManagedProcess, ProcessSpec, free_port
from srm_lab.stack.spark import check_spark, quick_start

_DEPLOY = "org.apache.spark.deploy"
_CORES = 2
START_S = 300.0


class Standalone:
    """A running cluster."""

    def __init__(self, master: str, workers: list[ManagedProcess]) -> None:
        self.master = master
        self.workers = workers

    def executors(self) -> list[psutil.Process]:
        """Executors of all workers, those without slots included."""
        found = []
        for worker in self.workers:
            if worker.pid is None:
                continue
            for process in psutil.Process(worker.pid).children():
                with suppress(psutil.NoSuchProcess):  # a zombie has no command line
                    if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline()):
                        found.append(process)
        return found


@contextmanager
def standalone(home: Path, workers: int = 2) -> Iterator[Standalone]:
    """Run a cluster on this machine; everything of it is killed at the end."""
    spark_class = check_spark().home / "bin" / "spark-class"
    environ = {
        **os.environ,
        **owner(),
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": LOOPBACK,
        # Executors have the environment of their workers.
        "JAVA_TOOL_OPTIONS": " ".join(quick_start()),
    }
    port = free_port()
    url = f"spark://{LOOPBACK}:{port}"

    def start(name: str, *arguments: str) -> ManagedProcess:
        process = ManagedProcess(name, home / f"{name}.log", home / f"{name}.pid")
        command = [str(spark_class), *arguments]
        process.start(ProcessSpec(name, command, environ, process.log, home))
        stack.callback(process.kill)
        return process

    with ExitStack() as stack:
        address = ["--host", LOOPBACK, "--port", str(port), "--webui-port", str(free_port())]
        master = start("master", f"{_DEPLOY}.master.Master", *address)
        eventually(
            lambda: "New state: ALIVE" in master.log.read_text(), "the master is ready", START_S
        )
        started = []
        for number in range(workers):
            size = ["--cores", str(_CORES), "--memory", "2g", "--work-dir", str(home / "work")]
            place = ["--host", LOOPBACK, "--webui-port", str(free_port()), url]
            started.append(start(f"worker{number}", f"{_DEPLOY}.worker.Worker", *size, *place))
        eventually(
            lambda: all("Successfully registered" in w.log.read_text() for w in started),
            "the workers are registered",
            START_S,
        )
        yield Standalone(url, started)
