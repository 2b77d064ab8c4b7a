"""Airflow on SQLite: its components started directly and in parallel.

``airflow standalone`` imports Airflow and checks the database before it starts the others, and a
SIGTERM makes orphans of them; here each component is a process group of its own.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import httpx

from srm.errors import StackError
from srm_lab.stack.airflow_database import ensure_database
from srm_lab.stack.airflow_env import EXECUTION_API, airflow_environment, web_environment
from srm_lab.stack.ports import LOOPBACK, require_free
from srm_lab.stack.process import ManagedProcess, ProcessSpec

logger = logging.getLogger(__name__)

WEB: Final = "api-server"
EXECUTION: Final = "execution-api"
"""The API server of the tasks, apart from the one of people."""
COMPONENTS: Final = (WEB, EXECUTION, "scheduler", "dag-processor", "triggerer")
START_SECONDS: Final = 480.0
STOP_SECONDS: Final = 10.0
_REQUEST_SECONDS: Final = 30.0
_TICK_SECONDS: Final = 0.3

# Component: (section of /monitor/health, its field with the latest heartbeat).
_HEALTH: Final = {
    WEB: ("metadatabase", None),
    "scheduler": ("scheduler", "latest_scheduler_heartbeat"),
    "dag-processor": ("dag_processor", "latest_dag_processor_heartbeat"),
    "triggerer": ("triggerer", "latest_triggerer_heartbeat"),
}

OnReady = Callable[[str], None]
"""Called with the name of a component, or ``DAGs``, once it is ready."""

DAGS: Final = "DAGs"


class EmbeddedAirflow:
    """Airflow with the DAGs and plugins of a project folder.

    Args:
        home: folder of the stack: Airflow's own is ``airflow`` in it, logs go to ``logs``.
        project: folder with ``dags`` and ``plugins``.
        port: port of the web server and REST API.
        config_path: srm's properties file.
        environ: additions to the environment of every process.
    """

    def __init__(
        self, home: Path, project: Path, port: int, config_path: Path, environ: Mapping[str, str]
    ) -> None:
        self._home = home / "airflow"
        self._project = project
        self._port = port
        self._config_path = config_path
        self._extra = dict(environ)
        self.processes = {
            name: ManagedProcess(
                f"Airflow {name}",
                home / "logs" / f"airflow-{name}.log",
                home / "run" / f"airflow-{name}.pid",
            )
            for name in COMPONENTS
        }

    @cached_property
    def _client(self) -> httpx.Client:
        # One for all calls: each new one reads the system's certificates, 20 ms of CPU.
        return httpx.Client(
            base_url=f"http://{LOOPBACK}:{self._port}", trust_env=False, timeout=_REQUEST_SECONDS
        )

    @property
    def url(self) -> str:
        """Address of the web pages and the REST API."""
        return f"http://localhost:{self._port}"

    def environment(self) -> dict[str, str]:
        """Return the whole environment of the components; the caller's Airflow settings are out."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("AIRFLOW")}
        settings = airflow_environment(self._home, self._project, self._port, self._config_path)
        return {**inherited, **settings, **self._extra}

    def prepare(self) -> None:
        """Make or migrate the database.

        Raises:
            StackError: it cannot be made.
        """
        ensure_database(self._home / "airflow.db", self.environment())

    def start(self) -> None:
        """Start the components that do not run; does not wait until they are ready.

        Raises:
            StackError: the port is taken, or a program cannot run.
        """
        missing = [name for name, process in self.processes.items() if not process.running]
        environ = self.environment()
        if WEB in missing:
            require_free(self._port, "Airflow")
        if EXECUTION in missing:
            require_free(_execution_port(environ), "Airflow's task API")
        for name in missing:
            process = self.processes[name]
            program = "srm_lab.stack.airflow_forking" if name == "scheduler" else "airflow"
            command = [sys.executable, "-m", program, *_arguments(name, environ)]
            env = web_environment(environ) if name == WEB else environ
            process.start(ProcessSpec(process.name, command, env, process.log, self._home))

    def wait_ready(self, on_ready: OnReady, timeout: float = START_SECONDS) -> None:
        """Wait until every component is healthy and every DAG file has been parsed since its start.

        Raises:
            StackError: a component ended, a DAG file cannot be imported, or the time is up.
        """
        pending = [*COMPONENTS, DAGS]

        def advance() -> bool:
            self._require_running()
            health = self.health()
            for name in tuple(pending):
                if self._is_ready(name, health, pending):
                    pending.remove(name)
                    on_ready(name)
            return not pending

        try:
            self.processes[WEB].wait_until(advance, timeout, "ready", tick=_TICK_SECONDS)
        except StackError as error:
            waiting = ", ".join(pending)
            raise StackError(f"Airflow did not get ready ({waiting} missing): {error}") from error

    def health(self) -> dict[str, bool]:
        """Return which components report themselves healthy since they were started."""
        body = self._get("/api/v2/monitor/health")
        return {name: self._is_healthy(name, body) for name in COMPONENTS}

    def stop(self, names: Collection[str] = COMPONENTS) -> None:
        """Stop the named components: SIGTERM, wait, SIGKILL."""
        with ThreadPoolExecutor(len(COMPONENTS)) as pool:
            list(pool.map(lambda name: self.processes[name].stop(STOP_SECONDS), names))

    def _require_running(self) -> None:
        for process in self.processes.values():
            if not process.running:
                raise StackError(
                    f"{process.name} ended by itself: {process.last_words()} (see {process.log})"
                )

    def _is_ready(self, name: str, health: Mapping[str, bool], pending: list[str]) -> bool:
        if name == DAGS:
            return pending == [DAGS] and self._dags_parsed()
        return health[name]

    def _is_healthy(self, name: str, body: Any) -> bool:
        if name == EXECUTION:
            return self._execution_healthy()
        section, heartbeat = _HEALTH[name]
        started = self.processes[name].start_time
        if body is None or started is None or body[section]["status"] != "healthy":
            return False
        # The database also remembers the heartbeats of an earlier start.
        return heartbeat is None or _is_after(body[section][heartbeat], started)

    def _execution_healthy(self) -> bool:
        if not self.processes[EXECUTION].running:
            return False
        # The first call makes it build its routes, seconds that no task has to wait then.
        port = _execution_port(self.environment())
        return self._get(f"http://{LOOPBACK}:{port}/execution/health") is not None

    def _dags_parsed(self) -> bool:
        started = self.processes["dag-processor"].start_time
        expected = dag_files(self._project / "dags")
        token = self._get("/auth/token")
        if token is None or started is None:
            return False
        headers = {"Authorization": f"Bearer {token['access_token']}"}
        errors = self._get("/api/v2/importErrors", headers)
        for error in errors["import_errors"] if errors else ():
            if _is_after(error["timestamp"], started):
                last_line = error["stack_trace"].strip().splitlines()[-1]
                raise StackError(f"DAG file {error['filename']} cannot be imported: {last_line}")
        dags = self._get("/api/v2/dags?limit=100&exclude_stale=false", headers)
        parsed = {
            dag["relative_fileloc"]
            for dag in (dags["dags"] if dags else ())
            if _is_after(dag["last_parsed_time"], started)
        }
        return expected <= parsed

    def _get(self, path: str, headers: Mapping[str, str] | None = None) -> Any:
        """Return the decoded answer, None while there is none."""
        try:
            response = self._client.get(path, headers=headers)
        except httpx.TransportError:
            return None
        return response.json() if response.is_success else None


def _arguments(name: str, environ: Mapping[str, str]) -> list[str]:
    """Return the arguments of ``airflow`` that start a component."""
    if name == WEB:
        return ["api-server", "--apps", "core"]
    if name == EXECUTION:
        return ["api-server", "--apps", "execution", "--port", str(_execution_port(environ))]
    return [name]


def _execution_port(environ: Mapping[str, str]) -> int:
    return httpx.URL(environ[EXECUTION_API]).port or 0


def dag_files(folder: Path) -> set[str]:
    """Return the files, relative to ``folder``, that Airflow takes for DAG files by their words."""
    found = set()
    for path in folder.rglob("*.py"):
        text = path.read_text(encoding="utf-8").lower()
        if "dag" in text and "airflow" in text:
            found.add(path.relative_to(folder).as_posix())
    return found


def _is_after(timestamp: str | None, started: float) -> bool:
    return timestamp is not None and datetime.fromisoformat(timestamp).timestamp() >= started
