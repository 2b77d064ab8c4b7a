"""Environment variables of the embedded Airflow; every AIRFLOW__ setting has its reason here.

All its processes are started with these variables, and nothing else configures them (but for how
long the web server waits for the database): an ``airflow`` command of a person with the same
variables sees the same Airflow.

The replicator is started by a task but outlives it on purpose (it has a session of its own).
``srm stack down`` finds it, and all other processes started below it, by ``AIRFLOW_HOME`` in
their environment.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from srm.errors import StackError
from srm_lab.stack.java import QUICK_START
from srm_lab.stack.ports import free_port
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


def airflow_environment(home: Path, project: Path, port: int, config_path: Path) -> dict[str, str]:
    """Return the variables of an embedded Airflow, to be laid over the environment.

    Args:
        home: AIRFLOW_HOME: database, logs and secrets; created when absent.
        project: folder with ``dags``; plugins are found by their entry points.
        port: port of the web server and REST API on the loopback interface.
        config_path: srm's properties file.

    Raises:
        StackError: pyspark is not installed, or ``home`` cannot be written.
    """
    home, project = home.absolute(), project.absolute()
    kept = _keep_values(home)
    return {
        "AIRFLOW_HOME": str(home),
        "SRM_CONFIG": str(config_path.absolute()),
        **_core(home, project, kept),
        **_web(port, kept),
        **_quick_turnaround(),
        **_spark(),
        **_loopback_without_proxy(),
        # numpy is imported before Airflow forks, and threads of its do not survive that.
        "OPENBLAS_NUM_THREADS": "1",
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
        # Everybody who reaches the port is an administrator, so only this machine may reach it.
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
        "AIRFLOW__CORE__AUTH_MANAGER": (
            "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager"
        ),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
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
        "fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "execution_port": str(execution_port),
        "worker_log_port": str(worker_port),
        "trigger_log_port": str(trigger_port),
    }
