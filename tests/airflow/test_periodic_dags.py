"""The periodic DAGs as a whole: DAG.test() with the real engine on real brokers."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.airflow.copies import Site

from srm.domain.groups.mm2_records import Checkpoint
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine import verification
from srm.engine.cluster_ports import TopicSpec
from srm_airflow import engine_calls, move_form
from srm_airflow.spark_jobs import SparkJobOperator

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.kafka,
    # Running a task imports half of Airflow, which warns about the packages it uses itself.
    pytest.mark.filterwarnings("default"),
]


def test_checkpoints_of_both_flows_are_emitted_and_told_to_the_asset(site: Site) -> None:
    site.commit(60)

    states = site.run(site.dag("srm_checkpoints"))

    forward, backward = (
        f"emit_{site.x.alias}_to_{site.y.alias}",
        f"emit_{site.y.alias}_to_{site.x.alias}",
    )
    assert states == {"run": "success", forward: "success", backward: "success"}
    records = site.y.compacted_topic(internal_topics.checkpoints(site.x.alias)).read()
    (checkpoint,) = [Checkpoint.decode(key, value) for key, value in records.items()]
    assert (checkpoint.group, checkpoint.downstream_offset) == (site.group, 60)
    summary = site.xcom(forward)
    assert (summary["groups"], summary["written"], summary["errors"]) == (1, 1, {})
    assert "outcomes" not in summary, "XCom is for people: no line per group and partition"


def test_a_flow_is_within_its_rpo_when_the_target_has_what_the_source_had(site: Site) -> None:
    rpo = f"_{site.x.alias}_to_{site.y.alias}"

    assert site.run(site.dag("srm_rpo", rpo)) == {"run": "success", "copy": "success"}

    late = Producer({"bootstrap.servers": site.bootstraps[0]})
    late.produce(site.topic, b"late", partition=0)
    assert late.flush(60) == 0
    assert not engine_calls.is_copied(site.flow, time.time() + 1)


def test_group_offsets_are_synced_by_hand_without_an_asset_event(site: Site) -> None:
    site.commit(60)

    states = site.run(site.dag("srm_group_offset_sync"))

    assert states == {"run": "success", "sync": "success"}
    assert site.y.committed_offsets(site.group) == {TopicPartition(site.remote, 0): 60}
    assert site.xcom("sync")[site.flow]["applied"] == 1


def test_a_new_topic_gets_its_remote_topic(site: Site) -> None:
    site.commit(60)
    topic = f"{site.topic}-{uuid.uuid4().hex[:4]}"
    site.x.create_topics([TopicSpec(topic, 3, 1, {})])

    states = site.run(site.dag("srm_topic_sync"))

    assert states["run"] == "success"
    assert site.y.topics()[f"{site.x.alias}.{topic}"].partitions == 3
    offered = json.loads(site.variable(move_form.variable_of(Flow.parse(site.flow))))
    assert offered == {"topics": sorted([site.topic, topic]), "groups": [site.group]}


def test_an_aggregation_starts_no_spark_for_few_raw_metrics_and_tells_the_lag_of_a_silent_flow(
    site: Site,
) -> None:
    states = site.run(site.dag("srm_metrics_aggregation"))

    assert states == {"run": "success", "aggregate": "success", "aggregate_in_spark": "skipped"}
    summary = site.xcom("aggregate", "summary")[str(Flow.parse(site.flow).reverse)]
    assert summary["engine"] == "plain"
    assert summary["silence"]["reason"] == "no replicator has ever run"


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The arguments of Spark jobs, which are not started."""
    left: list[list[str]] = []

    def execute(self: SparkJobOperator, context: Any) -> None:
        del context
        left.append(self.application_args)

    monkeypatch.setattr(SparkJobOperator, "execute", execute)
    return left


def test_a_verification_starts_spark_only_for_flows_with_more_than_one_process_compares(
    site: Site, submitted: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = site.dag("srm_verification")
    with monkeypatch.context() as patch:
        patch.setattr(verification, "MOST_AT_ONCE", 0)
        states = site.run(dag)

    assert states == {"run": "success", "verify": "success", "verify_in_spark": "success"}
    [arguments] = submitted
    assert arguments[2:4] == ["--flow", site.flow]
    assert arguments.count("--flow") == 1

    states = site.run(dag)

    assert states == {"run": "success", "verify": "success", "verify_in_spark": "skipped"}
    assert site.xcom("verify", "summary")[site.flow]["equal"] == 1
    assert len(submitted) == 1


def test_a_verification_that_cannot_be_planned_is_left_to_spark_which_says_why(
    site: Site, submitted: list[list[str]]
) -> None:
    states = site.run(site.dag("srm_verification"), {"topics": [f"{site.topic}-unknown"]})

    assert states == {"run": "success", "verify": "success", "verify_in_spark": "success"}
    assert submitted[0].count("--flow") == 2
