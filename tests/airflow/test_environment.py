"""The environment of the embedded Airflow: what cost hours when it was missing."""

from __future__ import annotations

import json
import stat
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from srm.errors import StackError
from srm_airflow.plugin import HOSTS_VARIABLE, host_check
from srm_lab.stack.airflow import airflow_environment, web_environment

PROJECT = Path(__file__).resolve().parents[2]


def environment(home: Path) -> dict[str, str]:
    return airflow_environment(home, PROJECT, 18123, home / "srm.properties")


def test_tasks_find_the_api_on_the_chosen_port_and_only_this_machine_reaches_it(
    tmp_path: Path,
) -> None:
    made = environment(tmp_path)

    assert made["AIRFLOW__API__PORT"] == "18123"
    assert made["AIRFLOW__API__BASE_URL"] == "http://localhost:18123"
    assert made["AIRFLOW__API__HOST"] == "127.0.0.1"
    assert {"localhost", "127.0.0.1"} <= set(made["NO_PROXY"].split(","))


def test_tasks_call_a_server_of_their_own(tmp_path: Path) -> None:
    """In one process with people's calls both can wait for each other, over SQLite's one writer."""
    made = environment(tmp_path)
    url = httpx.URL(made["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"])

    assert (url.host, url.path) == ("localhost", "/execution/")
    assert url.port not in {None, 18123}
    assert environment(tmp_path)["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == str(url)


def test_a_home_of_an_older_version_gets_what_it_lacks_and_keeps_its_secrets(
    tmp_path: Path,
) -> None:
    first = environment(tmp_path / "home")
    (path,) = (tmp_path / "home").glob("*.json")
    kept = json.loads(path.read_text())
    del kept["execution_port"]
    path.write_text(json.dumps(kept))
    second = environment(tmp_path / "home")

    assert second["AIRFLOW__API_AUTH__JWT_SECRET"] == first["AIRFLOW__API_AUTH__JWT_SECRET"]
    assert "execution_port" in json.loads(path.read_text())


def test_secrets_are_long_enough_private_and_the_same_after_a_restart(tmp_path: Path) -> None:
    first, second = environment(tmp_path / "home"), environment(tmp_path / "home")

    assert first == second
    assert len(first["AIRFLOW__API_AUTH__JWT_SECRET"]) >= 64
    (kept,) = (tmp_path / "home").glob("*.json")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_one_user_logs_in_with_a_password_of_this_home_and_tasks_do_as_well(
    tmp_path: Path,
) -> None:
    made, other = environment(tmp_path / "home"), environment(tmp_path / "other")
    file = Path(made["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
    password = made["SRM_AIRFLOW_PASSWORD"]

    assert made["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS"] == "False"
    assert json.loads(file.read_text()) == {made["SRM_AIRFLOW_USER"]: password}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(password) >= 16
    assert password != other["SRM_AIRFLOW_PASSWORD"]


def test_a_name_that_is_led_to_this_machine_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A page of another site can make its own name lead here, and is then no other site."""
    hosts = web_environment(environment(tmp_path))[HOSTS_VARIABLE]
    monkeypatch.setenv(HOSTS_VARIABLE, hosts)
    [check] = host_check()

    async def served(_scope: Any, _receive: Any, send: Any) -> None:
        await PlainTextResponse("Airflow")(_scope, _receive, send)

    client = TestClient(check["middleware"](served, *check["args"], **check["kwargs"]))
    answers = {
        host: client.get("/", headers={"Host": host}).status_code
        for host in ("localhost:8080", "127.0.0.1:8080", "evil.example:8080")
    }
    assert answers == {"localhost:8080": 200, "127.0.0.1:8080": 200, "evil.example:8080": 400}


def test_the_log_servers_have_ports_of_their_own(tmp_path: Path) -> None:
    """Two stacks on one machine would fight for Airflow's fixed 8793 and 8794."""
    one, other = environment(tmp_path / "one"), environment(tmp_path / "other")
    names = ("WORKER", "TRIGGER")
    ports = {e[f"AIRFLOW__LOGGING__{n}_LOG_SERVER_PORT"] for e in (one, other) for n in names}

    assert len(ports) == 4
    assert not ports & {"8793", "8794"}


def test_settings_that_name_python_objects_name_existing_ones(tmp_path: Path) -> None:
    made = environment(tmp_path)
    for key in ("SQL_ALCHEMY_CONNECT_ARGS", "SQL_ALCHEMY_CONNECT_ARGS_ASYNC"):
        module, _, name = made[f"AIRFLOW__DATABASE__{key}"].rpartition(".")
        assert getattr(import_module(module), name)["timeout"] == 60


def test_spark_is_found_by_the_connection_and_by_name(tmp_path: Path) -> None:
    made = environment(tmp_path)

    assert json.loads(made["AIRFLOW_CONN_SRM_SPARK"]) == {"conn_type": "spark", "host": "local[4]"}
    assert (Path(made["SPARK_HOME"]) / "bin" / "spark-submit").is_file()
    assert (Path(made["PATH"].split(":")[0]) / "spark-submit").is_file()


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")

    with pytest.raises(StackError, match=r"cannot keep Airflow's secrets in .*file"):
        environment(blocked / "home")
