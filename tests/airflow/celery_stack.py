"""An Airflow with CeleryExecutor: PostgreSQL, Redis and two workers, each a process of its own."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
from tests.debian import program
from tests.waiting import eventually

from srm_lab.stack.airflow import EXECUTION_API, airflow_environment
from srm_lab.stack.process import free_port

PROJECT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = (
    *("apache-airflow-providers-celery==3.26.0", "celery==5.5.3", "kombu==5.5.4"),
    *("click-didyoumean", "click-plugins", "click-repl", "prompt-toolkit", "wcwidth", "tzlocal"),
    *("redis==5.2.1", "billiard", "vine", "amqp", "psycopg2-binary", "asyncpg"),
)
"""What Airflow lacks for this; its own packages stay as they are."""
USER: Final = "srm"
PASSWORD: Final = "only-for-this-test"
HOSTS: Final = "import os\n\ndef name():\n    return os.environ.get('HOST_OF_TEST', 'host')\n"


class CeleryAirflow:
    """Calls Airflow's REST API as a user that has logged in."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._headers: dict[str, str] = {}

    def up(self) -> bool:
        """Whether the API answers and scheduler, processor and triggerer beat."""
        try:
            health = httpx.get(f"{self.url}/api/v2/monitor/health", trust_env=False).json()
        except (httpx.HTTPError, ValueError):
            return False
        parts = ("scheduler", "dag_processor", "triggerer")
        return all(health[part]["status"] == "healthy" for part in parts)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request; return what is answered, None for 404."""
        if not self._headers:
            login = {"username": USER, "password": PASSWORD}
            token = httpx.post(f"{self.url}/auth/token", json=login, trust_env=False)
            token.raise_for_status()
            self._headers = {"Authorization": f"Bearer {token.json()['access_token']}"}
        answer = httpx.request(
            method,
            f"{self.url}/api/v2{path}",
            json=body,
            headers=self._headers,
            timeout=60,
            trust_env=False,
        )
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        assert answer.is_success, f"{method} {path}: {answer.text}"
        return answer.json()

    def run(self, dag_id: str, conf: dict[str, Any]) -> str:
        """Trigger a run of a DAG that is known and not paused; wait for its end."""
        eventually(lambda: self.call("GET", f"/dags/{dag_id}"), f"{dag_id} is known", 600)
        self.call("PATCH", f"/dags/{dag_id}", {"is_paused": False})
        path = f"/dags/{dag_id}/dagRuns"
        run = self.call("POST", path, {"logical_date": None, "conf": conf})["dag_run_id"]
        over = {"success", "failed"}
        eventually(
            lambda: self.call("GET", f"{path}/{run}")["state"] in over, f"{dag_id} ends", 900
        )
        self.call("PATCH", f"/dags/{dag_id}", {"is_paused": True})  # its schedule takes workers
        return str(run)

    def tasks(self, dag_id: str, run: str) -> dict[str, dict[str, Any]]:
        """Return the task instances of a run by task."""
        found = self.call("GET", f"/dags/{dag_id}/dagRuns/{run}/taskInstances")
        return {one["task_id"]: one for one in found["task_instances"]}


@contextmanager
def celery_airflow(home: Path, config: Path) -> Iterator[CeleryAirflow]:
    """Start all of it; stop it again."""
    port, packages = free_port(), home / "packages"
    with ExitStack() as stack:
        database = stack.enter_context(postgres())
        broker = stack.enter_context(redis(home))
        uv = [sys.executable, "-m", "uv", "pip", "install", "-q", "--no-deps"]
        subprocess.run([*uv, "--target", str(packages), *PACKAGES], check=True)
        environ = _environment(home, config, port, (database, broker), packages)
        _run_airflow(environ, "db", "migrate")
        names = ("api-server", "scheduler", "dag-processor", "triggerer")
        for name in names:
            stack.enter_context(_process(environ, home, name, name))
        for host in ("worker-1", "worker-2"):
            worker = {**environ, "HOST_OF_TEST": host}
            command = ("celery", "worker", "--skip-serve-logs", "--celery-hostname", f"{host}@x")
            stack.enter_context(_process(worker, home, host, *command))
        made = CeleryAirflow(f"http://localhost:{port}")
        eventually(made.up, "Airflow is up", 600)
        yield made


@contextmanager
def postgres() -> Iterator[str]:
    """Start a PostgreSQL of Debian; give its address without a driver."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = found[-1] if found else Path(program("initdb", "postgresql"))
    folder, port = Path(tempfile.mkdtemp(prefix="srm-postgres-", dir="/tmp")), free_port()
    as_user = []
    if os.geteuid() == 0:  # which PostgreSQL refuses
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_user = ["runuser", "-u", "postgres", "--"]
    data = str(folder / "data")
    make = [*as_user, str(initdb), "-D", data, "-U", "airflow", "--auth=trust", "-N"]
    start = [*as_user, str(initdb.with_name("postgres")), "-D", data, "-k", str(folder)]
    start += ["-h", "127.0.0.1", "-p", str(port), "-c", "fsync=off", "-c", "max_connections=200"]
    try:
        subprocess.run(make, check=True, capture_output=True, cwd="/")
        with _child(start, dict(os.environ), folder / "log", cwd="/"):
            ready = [str(initdb.with_name("pg_isready")), "-h", "127.0.0.1", "-p", str(port)]
            eventually(
                lambda: subprocess.run(ready, capture_output=True, check=False).returncode == 0,
                "PostgreSQL answers",
            )
            yield f"airflow@127.0.0.1:{port}/postgres"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def redis(home: Path) -> Iterator[str]:
    """Start a Redis of Debian; give its address."""
    port = free_port()
    command = [program("redis-server", "redis-server"), "--port", str(port), "--save", ""]
    with _child([*command, "--bind", "127.0.0.1"], dict(os.environ), home / "redis.log"):
        yield f"redis://127.0.0.1:{port}/0"


def _environment(
    home: Path, config: Path, port: int, addresses: tuple[str, str], packages: Path
) -> dict[str, str]:
    database, broker = addresses
    (home / "hosts_of_test.py").write_text(HOSTS)
    passwords = home / "passwords.json"
    passwords.write_text(json.dumps({USER: PASSWORD}))
    made = airflow_environment(home / "airflow", PROJECT, port, config)
    made = {key: value for key, value in made.items() if "SQL_ALCHEMY_CONNECT_ARGS" not in key}
    folders = (packages, home, PROJECT / "src", PROJECT)
    # That of the test has an Airflow of its own, on SQLite.
    outer = {key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW_")}
    return {
        **outer,
        **made,
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        EXECUTION_API: f"http://localhost:{port}/execution/",
        "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
        "AIRFLOW__CORE__HOSTNAME_CALLABLE": "hosts_of_test.name",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2://{database}",
        "AIRFLOW__CELERY__BROKER_URL": broker,
        "AIRFLOW__CELERY__RESULT_BACKEND": f"db+postgresql+psycopg2://{database}",
        "AIRFLOW__CELERY__WORKER_CONCURRENCY": "1",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "20",
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
        "SRM_AIRFLOW_USER": USER,
        "SRM_AIRFLOW_PASSWORD": PASSWORD,
    }


def _run_airflow(environ: dict[str, str], *arguments: str) -> None:
    command = [sys.executable, "-m", "airflow", *arguments]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@contextmanager
def _process(environ: dict[str, str], home: Path, log: str, *arguments: str) -> Iterator[None]:
    command = [sys.executable, "-m", "airflow", *arguments]
    with _child(command, environ, home / f"{log}.log"):
        yield


@contextmanager
def _child(
    command: list[str], environ: dict[str, str], log: Path, cwd: str | None = None
) -> Iterator[None]:
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd=cwd,
        )
    try:
        yield
    finally:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(child.pid, sign)
                child.wait(30)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
