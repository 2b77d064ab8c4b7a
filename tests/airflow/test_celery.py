"""CeleryExecutor with two workers: tasks share nothing but Airflow's API and Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.airflow.celery_stack import CeleryAirflow, celery_airflow
from tests.airflow.copies import copied_site, reporting
from tests.cases import needs_all_cases
from tests.waiting import eventually

from srm.domain.names.topics import TopicPartition
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [needs_all_cases, pytest.mark.airflow, pytest.mark.kafka, pytest.mark.timeout(2400)]


def test_a_move_whose_tasks_run_on_different_workers(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    config = tmp_path / "srm.properties"
    with copied_site(clusters, config) as site, celery_airflow(tmp_path, config) as airflow:
        x, y = site.x.alias, site.y.alias
        site.commit(60)
        dag_id = f"srm_failover.{x}.{y}"

        synced = airflow.run("srm_topic_sync", {})
        with reporting(site):
            run = airflow.run(dag_id, {"operation": "failover", "residue_seconds": 0})

        tasks = airflow.tasks(dag_id, run)
        states = {name: one["state"] for name, one in tasks.items()}
        assert states.pop("approve") == "skipped"
        assert set(states.values()) == {"success"}, states
        assert site.y.committed_offsets(site.group) == {TopicPartition(site.remote, 0): 60}
        of_sync = airflow.tasks("srm_topic_sync", synced)
        hosts = {one["hostname"] for one in (*tasks.values(), *of_sync.values())}
        assert {"worker-1", "worker-2"} <= hosts
        note = airflow.call("GET", f"/dags/{dag_id}/dagRuns/{run}")["note"]
        assert note.startswith(f"failover {x}->{y}: clean"), "the task logged in by itself"
        eventually(lambda: offered(airflow, dag_id) == [site.topic], "the form's choices", 300)


def offered(airflow: CeleryAirflow, dag_id: str) -> list[str] | None:
    """Return the topics that the form of a move offers."""
    params = airflow.call("GET", f"/dags/{dag_id}/details")["params"]
    found: list[str] | None = params["topics"]["schema"].get("examples")
    return found
