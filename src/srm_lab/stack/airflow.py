"""Airflow on SQLite: its components started directly and in parallel.

``airflow standalone`` imports Airflow and checks the database before it starts the others, and a
SIGTERM makes orphans of them; here each component is a process group of its own.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import secrets
import shlex
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import httpx

from srm.errors import StackError
from srm.files import disk_errors, write_atomically
from srm_lab.stack.jars import cache_folder
from srm_lab.stack.java import QUICK_START
from srm_lab.stack.process import (
    LOOPBACK,
    ManagedProcess,
    ProcessSpec,
    error_line,
    free_port,
    require_free,
)
from srm_lab.stack.spark import check_spark, quick_start

SPARK_CONNECTION: Final = "srm_spark"
SPARK_MASTER: Final = "local[4]"

EXECUTION_API: Final = "AIRFLOW__CORE__EXECUTION_API_SERVER_URL"

SQLITE_CONNECT_ARGS: Final[dict[str, object]] = {"timeout": 60}
"""Wait for SQLite's single writer instead of failing with "database is locked" after 5 s."""
WEB_CONNECT_ARGS: Final[dict[str, object]] = {"timeout": 10}
"""The web server commits its audit log in its event loop: as long as that waits, all calls do."""
SQLITE_ASYNC_ARGS: Final[dict[str, object]] = {"timeout": 60}

_SECRETS_FILE: Final = "secrets.json"
_PASSWORDS_FILE: Final = "passwords"

USER: Final = "admin"
"""Name of the one user of an embedded Airflow."""


def airflow_environment(home: Path, project: Path, port: int, config_path: Path) -> dict[str, str]:
    """Return the variables of an embedded Airflow, to be laid over the environment.

    ``home``: AIRFLOW_HOME: database, logs and secrets; created when absent. ``project``: folder
    with ``dags``; plugins are found by their entry points. ``port``: port of the web server and
    REST API on the loopback interface. StackError: pyspark is not installed, or ``home`` cannot be
    written.
    """
    home, project = home.absolute(), project.absolute()
    kept = _keep_values(home)
    return {
        "AIRFLOW_HOME": str(home),
        **_login(home, kept),
        "SRM_CONFIG": str(config_path.absolute()),
        **_core(home, project, kept),
        **_web(port, kept),
        **_quick_turnaround(),
        **_spark(),
        **_loopback_without_proxy(),
        # numpy is imported before Airflow forks, and threads of its do not survive that.
        "OPENBLAS_NUM_THREADS": "1",
    }


def _login(home: Path, kept: Mapping[str, str]) -> dict[str, str]:
    """Let people and tasks log in with one name and a password that was made for this home."""
    passwords = home / _PASSWORDS_FILE
    if not passwords.exists():
        with disk_errors(passwords):
            passwords.touch(mode=0o600)
            passwords.write_text(json.dumps({USER: kept["password"]}))
    return {
        "AIRFLOW__CORE__AUTH_MANAGER": (
            "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager"
        ),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "SRM_AIRFLOW_USER": USER,
        "SRM_AIRFLOW_PASSWORD": kept["password"],
    }


def _core(home: Path, project: Path, kept: Mapping[str, str]) -> dict[str, str]:
    return {
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        # The default of 32 forks 32 idle workers at start. All periodic tasks of two flows take 8,
        # and where a cluster is dead they hold them for half a minute each, time and again: with 6,
        # each step of an unplanned move waited for that long.
        "AIRFLOW__CORE__PARALLELISM": "10",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(project / "dags"),
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__FERNET_KEY": kept["fernet_key"],
        # The default looks up the host name in DNS, which takes seconds without one.
        "AIRFLOW__CORE__HOSTNAME_CALLABLE": "socket.gethostname",
        # A run's note and a killed task wait for this: 60 s by default.
        "AIRFLOW__CORE__KILLED_TASK_CLEANUP_TIME": "20",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS": f"{__name__}.SQLITE_CONNECT_ARGS",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS_ASYNC": f"{__name__}.SQLITE_ASYNC_ARGS",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "AIRFLOW__LOGGING__DAG_PROCESSOR_CHILD_PROCESS_LOG_DIRECTORY": str(
            home / "logs" / "dag_processor"
        ),
        # Progress lines of a waiting move come from the triggerer at INFO.
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": kept["worker_log_port"],
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": kept["trigger_log_port"],
        "AIRFLOW__LOGGING__COLORED_CONSOLE_LOG": "False",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }


def _web(port: int, kept: Mapping[str, str]) -> dict[str, str]:
    url = f"http://localhost:{port}"
    return {
        # The login keeps pages of other sites out, not other hosts: only this machine reaches it.
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        # Without these two, tasks call port 8080 and every task fails while "queued".
        "AIRFLOW__API__BASE_URL": url,
        # A process of its own: where one serves people and tasks, a task's call that has begun to
        # write waits for the event loop to commit, while the loop waits for the same lock to
        # commit a user's click: both hang until SQLite times out.
        EXECUTION_API: f"http://localhost:{kept['execution_port']}/execution/",
        "AIRFLOW__API__SECRET_KEY": kept["secret_key"],
        "AIRFLOW__API__INSTANCE_NAME": "srm",
        "AIRFLOW__API__EXPOSE_CONFIG": "True",
        "AIRFLOW__API_AUTH__JWT_SECRET": kept["jwt_secret"],
    }


def _quick_turnaround() -> dict[str, str]:
    """Cut pauses between tasks, downtime between hold and go, and failures of a busy machine."""
    return {
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        # Sweeps timed-out deferrals (15 s by default): a wait that gives up should do so then.
        "AIRFLOW__SCHEDULER__TRIGGER_TIMEOUT_CHECK_INTERVAL": "3",
        # A task whose process died is noticed after this (300 s by default); with 60 s, tasks of an
        # overloaded machine were taken for dead.
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "180",
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "30",
        # Scheduler and API server start side by side: the first tasks wait for the API instead of
        # failing after 15 s.
        "AIRFLOW__WORKERS__EXECUTION_API_RETRIES": "20",
        "AIRFLOW__WORKERS__EXECUTION_API_RETRY_WAIT_MAX": "5",
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "30",
        # New and changed files are looked for often; unchanged ones are parsed again rarely, which
        # costs a process each, and is only there to notice a change of the properties file.
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "120",
        "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "5",
        # Imports take longer on a busy machine, and a file that fails is read again in two minutes.
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "120",
        "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "150",
    }


def _spark() -> dict[str, str]:
    connection = {"conn_type": "spark", "host": SPARK_MASTER}
    bin_folder = str(Path(sys.executable).parent)
    return {
        f"AIRFLOW_CONN_{SPARK_CONNECTION.upper()}": json.dumps(connection),
        "SPARK_HOME": str(check_spark().home),
        # spark-submit starts the driver's Java before srm could ask for this, and one for itself.
        "SPARK_SUBMIT_OPTS": shlex.join(quick_start()),
        "SPARK_LAUNCHER_OPTS": " ".join(QUICK_START),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # The provider starts 'spark-submit' by name.
        "PATH": os.pathsep.join((bin_folder, os.environ.get("PATH", os.defpath))),
    }


def _loopback_without_proxy() -> dict[str, str]:
    """Exempt calls to the own REST API from a proxy that the environment may name."""
    known = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    hosts = [host for host in known.split(",") if host]
    value = ",".join(dict.fromkeys((*hosts, "localhost", "127.0.0.1")))
    return {"NO_PROXY": value, "no_proxy": value}


def web_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the web server, from that of the other processes."""
    return {
        **environ,
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS": f"{__name__}.WEB_CONNECT_ARGS",
        "SRM_AIRFLOW_HOSTS": f"localhost,{LOOPBACK}",
    }


def _keep_values(home: Path) -> dict[str, str]:
    """Return secrets and inner ports of this home: made once and kept, restarts must agree."""
    path = home / _SECRETS_FILE
    try:
        home.mkdir(parents=True, exist_ok=True)
        kept: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        made = {**_new_values(), **kept}
        if made == kept:
            return kept
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.touch(mode=0o600)
        fresh.write_text(json.dumps(made))
        fresh.rename(path)
    except (OSError, ValueError) as error:
        raise StackError(
            f"cannot keep Airflow's secrets in {path}: {error}; "
            "make the folder writable or remove the file"
        ) from error
    else:
        return made


def _new_values() -> dict[str, str]:
    execution_port, worker_port, trigger_port = (free_port() for _ in range(3))
    return {
        # SHA512 signatures warn in every process about less than 64 bytes.
        "jwt_secret": secrets.token_hex(64),
        "secret_key": secrets.token_hex(64),
        "password": secrets.token_urlsafe(12),
        "fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "execution_port": str(execution_port),
        "worker_log_port": str(worker_port),
        "trigger_log_port": str(trigger_port),
    }


logger = logging.getLogger(__name__)

_MIGRATE_SECONDS: Final = 300.0
_CONNECTION: Final = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"


def ensure_database(database: Path, environ: Mapping[str, str]) -> None:
    """Make sure that the SQLite file exists and has the schema of the installed Airflow.

    StackError: the migration fails or the file cannot be written.
    """
    version = schema_version()
    stamp = database.with_suffix(".version")
    if database.exists():
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != version:
            _migrate(database, environ)
    else:
        write_atomically(database, _template(version, environ).read_bytes())
    write_atomically(stamp, version.encode())


def schema_version() -> str:
    """Return a text that changes whenever a package changes that may change the schema."""
    packages = sorted(
        f"{distribution.name}=={distribution.version}"
        for distribution in metadata.distributions()
        if distribution.name.lower().startswith(("apache-airflow", "sqlalchemy", "alembic"))
    )
    digest = hashlib.sha256("\n".join(packages).encode()).hexdigest()[:12]
    return f"{metadata.version('apache-airflow-core')}-{digest}"


def _template(version: str, environ: Mapping[str, str]) -> Path:
    template = cache_folder() / f"airflow-{version}.db"
    if template.exists():
        return template
    with (
        disk_errors(template),
        _folder_for_building() as folder,
    ):
        database = Path(folder) / "airflow.db"
        _migrate(database, {**environ, "AIRFLOW_HOME": folder})
        whole = Path(folder) / "whole.db"
        # A backup, not a copy: what is still in SQLite's write-ahead log belongs to it.
        with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(whole)) as copy:
            source.backup(copy)
        write_atomically(template, whole.read_bytes())
    return template


def _folder_for_building() -> tempfile.TemporaryDirectory[str]:
    cache_folder().mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".airflow-")


def _migrate(database: Path, environ: Mapping[str, str]) -> None:
    logger.info("migrating %s", database)
    result = subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"],
        env={**environ, _CONNECTION: f"sqlite:///{database}"},
        cwd=database.parent,
        capture_output=True,
        text=True,
        timeout=_MIGRATE_SECONDS,
        check=False,
    )
    if result.returncode != 0:
        lines = [line.strip() for line in (result.stdout + result.stderr).splitlines() if line]
        raise StackError(f"airflow db migrate failed on {database}: {error_line(lines)}")


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

    ``home``: folder of the stack: Airflow's own is ``airflow`` in it, logs go to ``logs``.
    ``project``: folder with ``dags`` and ``plugins``. ``port``: port of the web server and REST
    API. ``environ``: additions to the environment of every process.
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

    @property
    def login(self) -> tuple[str, str]:
        """Name and password of its user."""
        return USER, _keep_values(self._home)["password"]

    def environment(self) -> dict[str, str]:
        """Return the whole environment of the components; the caller's Airflow settings are out."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("AIRFLOW")}
        settings = airflow_environment(self._home, self._project, self._port, self._config_path)
        return {**inherited, **settings, **self._extra}

    def prepare(self) -> None:
        """Make or migrate the database.

        StackError: it cannot be made.
        """
        ensure_database(self._home / "airflow.db", self.environment())

    def start(self) -> None:
        """Start the components that do not run; does not wait until they are ready.

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
        token = self._token()
        if token is None or started is None:
            return False
        headers = {"Authorization": f"Bearer {token}"}
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

    def _token(self) -> str | None:
        login = dict(zip(("username", "password"), self.login, strict=True))
        try:
            answer = self._client.post("/auth/token", json=login)
        except httpx.TransportError:
            return None
        return str(answer.json()["access_token"]) if answer.is_success else None

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
