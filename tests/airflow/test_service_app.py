"""The SRM service inside a real API server: Airflow's users see it, by their rights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.airflow.test_report_pages import login

pytestmark = [
    pytest.mark.airflow,
    # The API server imports half of Airflow, which warns about the packages it uses itself.
    pytest.mark.filterwarnings("default"),
]
CONFIG = """
clusters = P, B
P.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:2
P->B.enabled = true
topics = Payments
"""


@pytest.fixture
def client(airflow_db: None, tmp_path: Path) -> Iterator[Any]:  # noqa: ARG001
    """An API server that asks its users who they are, and finds a properties file."""
    from airflow.api_fastapi.app import create_app, purge_cached_app  # noqa: PLC0415
    from fastapi.testclient import TestClient  # noqa: PLC0415

    from srm_airflow import apps  # noqa: PLC0415 - after conftest

    (tmp_path / "srm.properties").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", "False")
        patch.setenv("SRM_CONFIG", str(tmp_path / "srm.properties"))
        patch.setattr(apps, "_made", [])
        purge_cached_app()
        with TestClient(create_app()) as made:
            yield made
        for app in apps._made:
            app.state.views.close()
        purge_cached_app()


def test_who_may_read_the_dag_sees_and_nobody_else(client: Any) -> None:
    assert client.get("/srm/v2/flows").status_code == 401
    assert client.get("/srm/v2/flows", headers=login(None)).status_code == 403
    [flow] = client.get("/srm/v2/flows", headers=login("viewer")).json()["items"]
    assert (flow["flow"], flow["state"]) == ("P->B", "UNKNOWN")


def test_who_may_edit_the_dag_acts_and_a_viewer_does_not(client: Any) -> None:
    def act(role: str) -> int:
        address = "/srm/v2/flows/P/X/replicator"
        return int(client.post(address, headers=login(role), json={"action": "stop"}).status_code)

    assert act("viewer") == 403
    assert act("admin") == 400  # the flow is unknown


def test_without_a_properties_file_it_says_so(client: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("SRM_CONFIG", "/nowhere/srm.properties")

    answer = client.get("/srm/v2/flows", headers=login("viewer"))

    assert client.get("/srm/v2/flows").status_code == 401
    assert client.get("/srm/v2/flows", headers=login(None)).status_code == 403
    assert answer.status_code == 503
    assert "/nowhere/srm.properties" in answer.json()["detail"]


def test_reports_of_runs_are_served_beside_it(client: Any) -> None:
    assert client.get("/srm/reports/any/none", headers=login("viewer")).status_code == 404
