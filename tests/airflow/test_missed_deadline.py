"""A missed RPO in a real Airflow: its scheduler finds it, its triggerer calls the notifier."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import httpx
import pytest
from tests.airflow.copies import COPIED, copied_site, reporting
from tests.airflow.running import PROJECT, running_airflow
from tests.waiting import eventually

from srm_lab.demo.airflow_api import AirflowApi
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.airflow, pytest.mark.kafka, pytest.mark.timeout(1800)]

RPO = timedelta(seconds=30)
PARTS = ("srm.event", "dag_run.dag_run_id", "deadline.deadline_time", "srm.text")


def test_a_missed_rpo_calls_the_notifier_once_and_a_kept_one_does_not(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    file, posts = tmp_path / "srm.properties", tmp_path / "posts"
    with copied_site(clusters, file) as site:
        with file.open("a") as lines:
            lines.write(_settings(site.flow))
        site.produce(10)
        environ = {
            # The connection of the notifier is made first.
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
            "PYTHONPATH": str(PROJECT),
        }
        with running_airflow(tmp_path, file, "srm_rpo", environ) as (airflow, api):
            assert refusals(airflow.url) == (401, 400)
            dag = f"srm_rpo_{site.x.alias}_to_{site.y.alias}"
            chat = {"connection_id": "chat", "conn_type": "generic", "host": str(posts)}
            api._call("POST", "/connections", json=chat)
            api.pause(dag, paused=False)

            eventually(lambda: told(posts), "the notifier is called")
            [(event, run, due, text)] = told(posts)
            [late] = api.runs(dag)
            queued = late["queued_at"]
            assert (event, run) == ("late", late["dag_run_id"])
            assert datetime.fromisoformat(due) == datetime.fromisoformat(queued) + RPO
            assert text == (
                f"copy {site.flow}: not all records written before {queued} are copied: "
                f"srm why --flow '{site.flow}'"
            )

            with reporting(site, COPIED + 10):
                eventually(lambda: api.run(dag, run).over, "all is copied")
                assert api.run(dag, run).state == "success"
                eventually(lambda: kept(api, dag), "a later run keeps its deadline")
            runs = [post[1] for post in told(posts)]
            assert runs.count(run) == 1
            assert kept(api, dag).isdisjoint(runs)


def refusals(url: str) -> tuple[int, int]:
    """Return how Airflow answers without a login, and under a name that leads to this machine."""
    own = httpx.get(f"{url}/api/v2/dags", trust_env=False)
    other = httpx.get(url, headers={"Host": "evil.example"}, trust_env=False)
    return own.status_code, other.status_code


def told(posts: Path) -> list[list[str]]:
    """Return the parts of each text that the notifier has written."""
    return [line.split("|") for line in posts.read_text().splitlines()] if posts.exists() else []


def kept(api: AirflowApi, dag: str) -> set[str]:
    """Return the runs that ended well before their deadline: Airflow has forgotten it."""
    answer = api._client.get(f"/ui/dags/{dag}/dagRuns/~/deadlines").raise_for_status()
    left = {deadline["dag_run_id"] for deadline in answer.json()["deadlines"]}
    return {run["dag_run_id"] for run in api.runs(dag, "success")} - left


def _settings(flow: str) -> str:
    text = "|".join(f"{{{{ {part} }}}}" for part in PARTS)
    return (
        f"{flow}.rpo.seconds = {RPO.seconds}\n"
        "failover.notifier = tests.airflow.notified.Posted\n"
        f"failover.notifier.arguments = {json.dumps({'conn_id': 'chat', 'text': text})}\n"
    )
