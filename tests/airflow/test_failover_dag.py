"""srm_failover as a whole: DAG.test() with the real engine on real brokers.

The copy is made by hand here (the same records in the remote topic, the map and the position that a
replicator would write), so that each test decides what is synchronised.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from confluent_kafka import Producer

from srm.config.loader import load_config
from srm.domain import internal_topics
from srm.domain.map_records import MAP_PARTITIONS, MapBlock, map_partition
from srm.domain.offset_map import Position, Run
from srm.domain.replication_records import PartitionPosition, SlotReport
from srm.domain.routing import Route, group_subject, routes_of, topic_subject
from srm.domain.topics import TopicPartition
from srm.engine.ports import Cluster, TopicSpec
from srm.kafka.compacted import ensure_compacted
from srm.stack.kafka import KafkaBroker
from srm.wiring import open_cluster

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.kafka,
    # Running a task imports half of Airflow, which warns about the packages it uses itself.
    pytest.mark.filterwarnings("default"),
]

DAGS = Path(__file__).resolve().parents[2] / "dags"
CONFIG = """\
clusters = {x}, {y}
{x}.bootstrap.servers = {x_bootstrap}
{y}.bootstrap.servers = {y_bootstrap}
{x}->{y}.enabled = true
{y}->{x}.enabled = true
topics = {topic}
groups = {group}
replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
"""
COPIED = 100


@dataclass
class Site:
    """Two clusters under aliases of their own, one topic copied by hand, one group."""

    x: Cluster
    y: Cluster
    topic: str
    group: str
    dag: Any

    @property
    def remote(self) -> str:
        return f"{self.x.alias}.{self.topic}"

    def commit(self, offset: int) -> None:
        self.x.commit_idle(self.group, {TopicPartition(self.topic, 0): offset})

    def route(self, cluster: Cluster, subject: str) -> Route | None:
        return routes_of(cluster.compacted(internal_topics.ROUTING).read()).get(subject)

    def routes(self) -> set[tuple[str, str] | None]:
        subjects = (group_subject(self.group), topic_subject(self.topic))
        found = [self.route(cluster, one) for cluster in (self.x, self.y) for one in subjects]
        return {None if route is None else (route.cluster, route.state) for route in found}

    def run(self, conf: Mapping[str, Any] | None = None, **kwargs: Any) -> dict[str, Any]:
        run = self.dag.test(
            run_conf={"source": self.x.alias, "target": self.y.alias, **(conf or {})}, **kwargs
        )
        states = {ti.task_id: str(ti.state) for ti in run.get_task_instances()}
        return {"run": str(run.state), **states}


@pytest.fixture
def site(
    clusters: Mapping[str, KafkaBroker],
    airflow_db: None,  # noqa: ARG001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Site]:
    name = uuid.uuid4().hex[:8]
    x, y, topic, group = f"x{name}", f"y{name}", f"Payments{name}", f"billing{name}"
    file = tmp_path / "srm.properties"
    addresses = {"x_bootstrap": clusters["P"].bootstrap, "y_bootstrap": clusters["B"].bootstrap}
    file.write_text(CONFIG.format(x=x, y=y, topic=topic, group=group, **addresses))
    monkeypatch.setenv("SRM_CONFIG", str(file))
    bag = DagBag(str(DAGS / "srm_failover.py"))
    assert bag.import_errors == {}
    config = load_config(file)
    with open_cluster(config, x) as source, open_cluster(config, y) as target:
        made = Site(source, target, topic, group, bag.dags["srm_failover"])
        source.create_topics([TopicSpec(topic, 1, 1, {})])
        target.create_topics([TopicSpec(made.remote, 1, 1, {})])
        produce(clusters["P"].bootstrap, topic, COPIED)
        produce(clusters["B"].bootstrap, made.remote, COPIED)
        record_copy(made, COPIED)
        yield made


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(30) == 0


def record_copy(site: Site, count: int) -> None:
    """Write what a replicator writes when it has copied the first ``count`` records."""
    source_id = site.x.topics()[site.topic].topic_id
    target_id = site.y.topics()[site.remote].topic_id
    map_topic = internal_topics.offset_map(site.x.alias)
    state_topic = internal_topics.replication(site.x.alias)
    ensure_compacted(site.y, map_topic, MAP_PARTITIONS)
    ensure_compacted(site.y, state_topic)
    block = MapBlock(site.topic, source_id, 0, target_id, (1,), (Run(0, 0, count),))
    position = PartitionPosition(source_id, 0, Position(count, count, count), 0, 1, 0)
    report = SlotReport("0", 1, time.time_ns() // 1_000_000, (position,))
    site.y.compacted(map_topic, map_partition(source_id, 0)).write({block.key(): block.value()})
    site.y.compacted(state_topic).write({report.key(): report.value()})


def xcom(site: Site, task: str, key: str = "return_value") -> Any:
    from airflow.models.xcom import XComModel  # noqa: PLC0415 - needs the database of the fixture
    from airflow.utils.session import create_session  # noqa: PLC0415

    with create_session() as session:
        found = session.scalars(
            XComModel.get_many(dag_ids=site.dag.dag_id, task_ids=task, key=key, limit=1)
            .order_by(None)
            .order_by(XComModel.timestamp.desc())
        ).first()
        return None if found is None else XComModel.deserialize_value(found)


def test_a_synchronised_group_moves_and_the_report_says_that_nothing_was_lost(site: Site) -> None:
    site.commit(60)

    states = site.run()

    assert states == {
        "run": "success",
        "plan": "success",
        "hold": "success",
        "wait": "success",
        "apply_and_go": "success",
        "release": "success",
        "verify": "success",
        "report": "success",
    }
    assert site.y.committed(site.group) == {TopicPartition(site.remote, 0): 60}
    assert site.routes() == {(site.y.alias, "go")}
    report = xcom(site, "report")
    assert report["ok"] is True
    assert report["rpo_records"] == 0
    assert report["groups"][site.group]["lag_at_hold"] == 40
    assert xcom(site, "plan")["groups"][site.group]["lag"] == 40


def test_marking_the_wait_as_successful_opens_nothing_and_releases_the_hold(site: Site) -> None:
    """The group has read further than the copy reaches: going now would skip or repeat records."""
    produce_more(site, 30)
    site.commit(120)

    states = site.run(mark_success_pattern="wait")

    assert states["wait"] == "success"
    assert states["apply_and_go"] == "failed"
    assert states["release"] == "success"
    assert states["run"] == "failed"
    assert site.y.committed(site.group) == {}
    assert site.routes() == {(site.x.alias, "go")}
    assert xcom(site, "report", "report")["step"] == "released"


def test_the_refusal_after_a_wait_marked_as_successful_is_a_closed_gate(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    produce_more(site, 30)
    site.commit(120)

    site.run(mark_success_pattern="wait")

    assert "GateClosedError" in capsys.readouterr().out


def test_a_group_that_is_not_synchronised_in_time_stays_where_it_is(site: Site) -> None:
    produce_more(site, 30)
    site.commit(120)

    states = site.run({"wait_seconds": 3})

    assert (states["wait"], states["apply_and_go"]) == ("failed", "upstream_failed")
    assert (states["release"], states["run"]) == ("success", "failed")
    assert site.routes() == {(site.x.alias, "go")}
    assert site.x.committed(site.group) == {TopicPartition(site.topic, 0): 120}


def test_a_wait_that_is_over_when_the_copy_catches_up_goes_on_by_itself(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole wait is spent in the trigger, as in a move that takes longer than some seconds."""
    produce_more(site, 30)
    site.commit(120)
    site.dag.get_task("wait").on_worker = 0.0
    polls: list[int] = []
    caught_up_at(monkeypatch, polls, 3, lambda: record_copy(site, COPIED + 30))

    states = site.run()

    assert len(polls) >= 3
    assert states["run"] == "success"
    assert site.y.committed(site.group) == {TopicPartition(site.remote, 0): 120}


def test_a_dry_run_plans_and_touches_nothing(site: Site) -> None:
    site.commit(60)

    states = site.run({"dry_run": True})

    assert (states["plan"], states["hold"], states["report"]) == ("success", "skipped", "success")
    assert states["run"] == "success"
    assert site.y.committed(site.group) == {}
    assert site.routes() == {None}
    assert xcom(site, "report")["groups"][site.group]["lag"] == 40


def test_an_unknown_key_is_refused_by_the_first_task(site: Site) -> None:
    site.commit(60)

    states = site.run({"grups": ["billing"]})

    assert (states["plan"], states["hold"], states["run"]) == (
        "failed",
        "upstream_failed",
        "failed",
    )
    assert site.routes() == {None}


def test_a_plan_that_is_blocked_stops_before_anybody_is_held(site: Site) -> None:
    """There is no group to move: the reason is in the failure, nothing was touched."""
    states = site.run()

    assert (states["plan"], states["run"]) == ("failed", "failed")
    assert site.routes() == {None}


def produce_more(site: Site, count: int) -> None:
    """Write to the source what is copied to the target too, but not recorded as copied yet."""
    for bootstrap, topic in site_topics(site):
        produce(bootstrap, topic, count)


def site_topics(site: Site) -> list[tuple[str, str]]:
    config = load_config()
    return [
        (config.client(site.x.alias, "producer")["bootstrap.servers"], site.topic),
        (config.client(site.y.alias, "producer")["bootstrap.servers"], site.remote),
    ]


def caught_up_at(
    monkeypatch: pytest.MonkeyPatch, polls: list[int], poll: int, catch_up: Callable[[], None]
) -> None:
    """Let the copy catch up before the given look of the trigger."""
    from srm_airflow.move_watch import MoveWatch  # noqa: PLC0415 - plugins folder, by conftest

    look = MoveWatch.poll

    def counted(watch: MoveWatch) -> Any:
        polls.append(1)
        if len(polls) == poll:
            catch_up()
        return look(watch)

    monkeypatch.setattr(MoveWatch, "poll", counted)
