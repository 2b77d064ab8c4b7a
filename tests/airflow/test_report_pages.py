"""The report of a move as a tab of the run that made it, in a real API server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from srm_airflow.moves import PAGE_KEY
from srm_airflow.plugin import SrmPlugin

pytestmark = [
    pytest.mark.airflow,
    # The API server imports half of Airflow, which warns about the packages it uses itself.
    pytest.mark.filterwarnings("default"),
]
DAG_ID = "leaves_pages"
DAG = f"""
from airflow.sdk import dag, get_current_context, task

@task
def leave(page):
    get_current_context()["ti"].xcom_push(key={PAGE_KEY!r}, value=page)

@dag(dag_id={DAG_ID!r}, schedule=None)
def leaves_pages():
    leave("<p>first</p>") >> leave("<p>second</p>") >> leave("")

leaves_pages()
"""


@pytest.fixture(scope="module")
def run_id(airflow_db: None, tmp_path_factory: pytest.TempPathFactory) -> str:  # noqa: ARG001
    """A run whose tasks have left a page, then one with more in it, then none."""
    from airflow.dag_processing.bundles.manager import (  # noqa: PLC0415 - after conftest
        DagBundlesManager,
    )
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db  # noqa: PLC0415

    file = tmp_path_factory.mktemp("dags") / f"{DAG_ID}.py"
    file.write_text(DAG)
    bag = DagBag(str(file))
    DagBundlesManager().sync_bundles_to_db()
    sync_bag_to_db(bag, "dags-folder", None)
    return str(bag.dags[DAG_ID].test().run_id)


@pytest.fixture(scope="module")
def client(airflow_db: None) -> Iterator[Any]:  # noqa: ARG001
    """An API server that asks its users who they are."""
    from airflow.api_fastapi.app import create_app, purge_cached_app  # noqa: PLC0415
    from fastapi.testclient import TestClient  # noqa: PLC0415

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", "False")
        purge_cached_app()
        with TestClient(create_app()) as made:
            yield made
        purge_cached_app()


def login(role: str | None) -> dict[str, str]:
    from airflow.api_fastapi.app import get_auth_manager  # noqa: PLC0415 - after conftest
    from airflow.api_fastapi.auth.managers.simple.user import (  # noqa: PLC0415
        SimpleAuthManagerUser,
    )

    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="ada", role=role))
    return {"Authorization": f"Bearer {token}"}


def test_the_tab_shows_the_newest_page_that_the_run_has_left(client: Any, run_id: str) -> None:
    [view] = [v for v in SrmPlugin.external_views if v["url_route"] == "srm-report"]
    address = view["href"].format(DAG_ID=DAG_ID, RUN_ID=run_id)

    answer = client.get(address, headers=login("viewer"))

    assert (answer.status_code, answer.text) == (200, "<p>second</p>")
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'self'" in policy


def test_a_run_without_a_report_says_so(client: Any, run_id: str) -> None:
    assert run_id
    answer = client.get(f"/srm/reports/{DAG_ID}/none", headers=login("viewer"))

    assert (answer.status_code, "no report of a move" in answer.text) == (404, True)


def test_nobody_sees_a_report_without_logging_in(client: Any, run_id: str) -> None:
    address = f"/srm/reports/{DAG_ID}/{run_id}"

    assert client.get(address).status_code == 401
    assert client.get(address, headers=login(None)).status_code == 403


def test_a_process_that_serves_no_pages_imports_nothing_of_the_server() -> None:
    code = (
        f"import sys; sys.path.append({str(Path(__file__).parents[2] / 'plugins')!r})\n"
        "import srm_airflow.plugin\n"
        "print([name for name in sys.modules if name.startswith('airflow.api_fastapi.core_api')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip().splitlines()[-1] == "[]"
