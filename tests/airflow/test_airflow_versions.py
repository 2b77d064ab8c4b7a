"""Airflow 3.1, 3.2 and 3.3: DAGs and plugin load, the steps of a move and its form work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distribution, version
from pathlib import Path
from subprocess import PIPE

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from tests.airflow.copies import copied_site, reporting
from tests.cases import cases
from tests.chromium import browser
from tests.waiting import eventually

from srm_lab.demo.airflow_api import AirflowApi
from srm_lab.stack.kafka import KafkaBroker

__all__ = ("browser",)

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(1800)]

PROJECT = Path(__file__).resolve().parents[2]
NEEDED = (
    *("aiokafka", "confluent-kafka", "crc32c", "cramjam", "javaproperties", "numpy"),
    *("platformdirs", "prometheus-client", "psutil", "pyspark", "pyspark-client", "tenacity"),
    *("hypothesis", "pytest", "pytest-randomly", "pytest-timeout"),
)
"""What srm and its tests need next to Airflow, in the versions of this environment."""
TESTS = ("alerts", "approval", "move_wait_operator", "moves", "rest", "triggers")
LOAD = """
import importlib, pathlib, runpy, sys
project = pathlib.Path(sys.argv[1])
for file in sorted((project / "plugins" / "srm_airflow").glob("*.py")):
    importlib.import_module(f"srm_airflow.{file.stem}")
files = sorted((project / "dags").glob("*.py"))
for file in files:
    runpy.run_path(str(file))
print(len(files), "files of DAGs")
"""
RUN = """
import pathlib, sys
from tests.airflow.running import running_airflow
folder, config = map(pathlib.Path, sys.argv[1:])
paused = {"AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True"}
with running_airflow(folder, config, "*", paused) as (airflow, _):
    print(airflow.url, *airflow.login, flush=True)
    sys.stdin.read()
"""
INSTALLED = version("apache-airflow")


@pytest.fixture(scope="module", params=cases([INSTALLED], ["3.1.8", "3.2.2"]))
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an environment with an Airflow; uv's cache has the packages of others."""
    if request.param == INSTALLED:
        return sys.executable
    home = tmp_path_factory.mktemp("venv")
    uv = (sys.executable, "-m", "uv")
    provider = "apache-airflow-providers-apache-spark"
    packages = (f"apache-airflow=={request.param}", f"{provider}=={version(provider)}")
    pinned = tuple(f"{name}=={version(name)}" for name in NEEDED)
    subprocess.run([*uv, "venv", "-q", "--python", sys.executable, str(home)], check=True)
    made = str(home / "bin" / "python")
    subprocess.run([*uv, "pip", "install", "-q", "--python", made, *packages, *pinned], check=True)
    return made


def test_dags_plugin_and_steps_of_a_move_work(python: str, tmp_path: Path) -> None:
    if python == sys.executable:
        pytest.skip("the tests themselves run in this one")
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "PYTHONPATH": paths(),
    }

    loaded = _run([python, "-W", "ignore", "-c", LOAD, str(PROJECT)], environment)
    files = [f"tests/airflow/test_{name}.py" for name in TESTS]
    tested = _run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files], environment)

    assert f"{len(list((PROJECT / 'dags').glob('*.py')))} files of DAGs" in loaded
    assert " passed" in tested


@pytest.mark.kafka
def test_every_form_opens_ready_and_a_move_is_triggered_approved_and_reported(
    python: str, clusters: dict[str, KafkaBroker], browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "srm.properties"
    with (
        copied_site(clusters, file) as site,
        reporting(site),
        served(python, file, tmp_path) as (url, login),
        AirflowApi(url, login) as api,
        browser.new_context(viewport={"width": 1280, "height": 1200}) as context,
    ):
        context.set_default_timeout(120_000)
        page, move = context.new_page(), f"srm_failover.{site.x.alias}.{site.y.alias}"
        site.commit(60)
        dags = api._call("GET", "/dags", params={"limit": 100})["dags"]
        files = {dag["relative_fileloc"]: dag["dag_id"] for dag in dags if dag["dag_id"] != move}
        assert "srm_failover" in files.values()
        sign_in(page, url, login)
        for dag in files.values():
            open_form(page, f"{url}/dags/{dag}")

        run = trigger(page, api, url, move, "dry_run")
        await_task(api, move, run, "report", "success")
        assert site.routes() == {None}

        run = trigger(page, api, url, move, "ask_approval")
        await_task(api, move, run, "approve", "awaiting_input", "deferred")
        page.goto(f"{url}/dags/{move}/runs/{run}/tasks/approve/required_actions")
        page.get_by_role("button", name="Approve", exact=True).click()
        await_task(api, move, run, "report", "success")
        assert site.routes() == {(site.y.alias, "go")}
        page.goto(f"{url}/dags/{move}/runs/{run}")
        page.get_by_role("link", name="Report of the move").click()
        expect(page.frame_locator("iframe").locator(".verdict")).to_have_text("clean")


@contextmanager
def served(python: str, config: Path, folder: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    """Run an Airflow with all DAGs, the periodic ones paused; give its address and a login."""
    found = Path(str(distribution("kafka-srm").locate_file("")))
    [entry_points] = found.glob("kafka_srm-*.dist-info")
    shutil.copytree(entry_points, folder / "installed" / entry_points.name)
    environment = {**os.environ, "PYTHONPATH": paths(folder / "installed", PROJECT)}
    command = [python, "-W", "ignore", "-c", RUN, str(folder / "airflow"), str(config)]
    with subprocess.Popen(
        command, cwd=PROJECT, env=environment, text=True, stdin=PIPE, stdout=PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            address = process.stdout.readline().strip()
            assert address, "Airflow has not started"
            url, name, password = address.split()
            yield url, (name, password)
        finally:
            process.stdin.close()


def sign_in(page: Page, url: str, login: tuple[str, str]) -> None:
    """Sign in; up to Airflow 3.2 the home page appears afterwards, whatever was opened before."""
    page.goto(f"{url}/auth/login")
    for label, value in zip(("Username", "Password"), login, strict=True):
        page.get_by_label(label).fill(value)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("link", name="Home").first).to_be_visible()


def open_form(page: Page, address: str) -> Locator:
    """Open the form of a DAG; nothing in it is marked as missing, and it can be sent."""
    page.goto(address)
    page.get_by_role("button", name="Trigger").first.click()
    form = page.get_by_role("dialog")
    expect(form.get_by_role("button", name="Trigger").last).to_be_enabled()
    arrow = "[data-part=item-indicator] svg"
    for section in form.locator("button[data-part=item-trigger]").all():
        expect(section.locator(f"svg:not({arrow})")).to_have_count(0)  # no mark of an error
    return form


def trigger(page: Page, api: AirflowApi, url: str, dag: str, switch: str) -> str:
    """Press the button of a form with nothing but one switch changed; return the run."""
    before = {run["dag_run_id"] for run in api.runs(dag)}
    form = open_form(page, f"{url}/dags/{dag}")
    form.get_by_role("button", name="Move", exact=True).click()
    form.locator(f"label:has([name=element_{switch}])").click()
    form.get_by_role("button", name="Trigger").last.click()
    expect(form).to_be_hidden()
    [run] = {run["dag_run_id"] for run in api.runs(dag)} - before
    return str(run)


def await_task(api: AirflowApi, dag: str, run: str, task: str, *states: str) -> None:
    def is_there() -> bool:
        tasks = api.run(dag, run).tasks
        assert "failed" not in tasks.values(), api.failure(dag, run)
        return tasks.get(task) in states

    eventually(is_there, f"{task} is {states[0]}")


def paths(*folders: Path) -> str:
    """Return the search path of an environment that has not installed srm."""
    return os.pathsep.join(map(str, (*folders, PROJECT / "src", PROJECT / "plugins")))


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout
