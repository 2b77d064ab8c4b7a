"""Two clusters with one topic copied by hand, for DAGs that run against real brokers.

The copy is the same records in the remote topic, with the map and the position that a replicator
would write, so that each test decides what is synchronised.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from tests.replicating import at_work, configure
from tests.slot_reports import records_of

from srm.domain.flow_state.replication_records import (
    REPORTS,
    STATE_PARTITIONS,
    PartitionPosition,
    SlotReport,
)
from srm.domain.moves.routing import group_subject, topic_subject
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_records import MAP_PARTITIONS, MapBlock, map_partition
from srm.domain.offset_map.offset_map import Position, Run
from srm.engine.cluster_ports import Cluster, TopicSpec
from srm.engine.control.control_topics import ensure_compacted
from srm.engine.moves.history import RoutingHistory
from srm.wiring import open_cluster
from srm_lab.stack.kafka import KafkaBroker

DAGS = Path(__file__).resolve().parents[2] / "dags"
COPIED = 100


@dataclass
class Site:
    """Two clusters under aliases of their own, so that tests do not see each other's state."""

    x: Cluster
    y: Cluster
    bootstraps: tuple[str, str]
    topic: str
    group: str
    run_id: str = ""
    dag_id: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def remote(self) -> str:
        """Name of the copied topic on the target."""
        return f"{self.x.alias}.{self.topic}"

    @property
    def flow(self) -> str:
        """The flow that the copy belongs to."""
        return f"{self.x.alias}->{self.y.alias}"

    def dag(self, name: str, ends: str = "") -> Any:
        """Load a DAG file, built from this site's configuration; the ends are its clusters."""
        from airflow.dag_processing.dagbag import DagBag  # noqa: PLC0415 - after conftest

        bag = DagBag(str(DAGS / f"{name}.py"))
        assert bag.import_errors == {}
        return bag.dags[name + ends.format(self.x.alias, self.y.alias)]

    def run(self, dag: Any, conf: Mapping[str, Any] | None = None, **kwargs: Any) -> dict[str, str]:
        """Run a DAG in this process; return the states of its tasks, and of the ``run``."""
        run = dag.test(run_conf=dict(conf or {}), **kwargs)
        self.dag_id, self.run_id = run.dag_id, run.run_id
        return {
            "run": str(run.state),
            **{ti.task_id: str(ti.state) for ti in run.get_task_instances()},
        }

    @contextmanager
    def answered(self, choice: str) -> Iterator[dict[str, str]]:
        """Let a person answer what the next run asks, as the web server does; give what was shown.

        Who it is, is not known here: there is no login.
        """
        shown: dict[str, str] = {}
        over = threading.Event()
        person = threading.Thread(target=_answer, args=(choice, shown, over))
        person.start()
        try:
            yield shown
        finally:
            over.set()
            person.join()

    def note(self) -> str:
        """Return the last note that the run's tasks have written."""
        return self.notes[-1]

    def xcom(self, task: str, key: str = "return_value") -> Any:
        """Return what a task of the latest run has pushed."""
        from airflow.models.xcom import XComModel  # noqa: PLC0415 - after conftest
        from airflow.utils.session import create_session  # noqa: PLC0415

        chosen = XComModel.get_many(run_id=self.run_id, dag_ids=self.dag_id, task_ids=task, key=key)
        with create_session() as session:
            found = session.scalars(chosen).first()
            return None if found is None else XComModel.deserialize_value(found)

    def variable(self, name: str) -> str:
        """Return the text of a variable of Airflow."""
        from airflow.models.variable import Variable  # noqa: PLC0415 - after conftest
        from airflow.utils.session import create_session  # noqa: PLC0415
        from sqlalchemy import select  # noqa: PLC0415

        with create_session() as session:
            return str(session.scalars(select(Variable).where(Variable.key == name)).one().val)

    def commit(self, offset: int) -> None:
        """Let the group have read up to an offset of the source topic."""
        self.x.commit_idle(self.group, {TopicPartition(self.topic, 0): offset})

    def routes(self) -> set[tuple[str, str] | None]:
        """Return where clients of group and topic are sent, as either cluster says."""
        tables = [RoutingHistory.read(cluster).routes for cluster in (self.x, self.y)]
        found = [
            table.get(subject)
            for table in tables
            for subject in (group_subject(self.group), topic_subject(self.topic))
        ]
        return {None if route is None else (route.cluster, route.state) for route in found}

    def produce(self, count: int) -> None:
        """Write records to the source and their copies to the target, not recorded as copied."""
        now_ms = time.time_ns() // 1_000_000  # a copy has the time of its original
        for bootstrap, topic in zip(self.bootstraps, (self.topic, self.remote), strict=True):
            producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
            for number in range(count):
                producer.produce(topic, str(number).encode(), partition=0, timestamp=now_ms)
            assert producer.flush(60) == 0

    def record_copy(self, count: int) -> None:
        """Write what a replicator writes when it has copied the first ``count`` records."""
        source_id = self.x.topics()[self.topic].topic_id
        target_id = self.y.topics()[self.remote].topic_id
        map_topic = internal_topics.offset_map(self.x.alias)
        state_topic = internal_topics.replication(self.x.alias)
        ensure_compacted(self.y, map_topic, MAP_PARTITIONS)
        ensure_compacted(self.y, state_topic, STATE_PARTITIONS)
        block = MapBlock(self.topic, source_id, 0, target_id, (1,), (Run(0, 0, count),))
        position = PartitionPosition(source_id, 0, target_id, Position(count, count, count), 1, 0)
        blocks = self.y.compacted_topic(map_topic, map_partition(block.topic, block.partition))
        blocks.write({block.key(): block.value()})
        now_ms = time.time_ns() // 1_000_000
        report = SlotReport("0", 1, now_ms, (position,), source_heard_ms=now_ms)
        self.y.compacted_topic(state_topic, REPORTS).write(records_of(report))


@contextmanager
def reporting(site: Site, count: int = COPIED) -> Iterator[None]:
    """Report every other second, as a live slot does, that so many records are copied."""

    def report(over: threading.Event) -> None:
        while not over.wait(2):
            site.record_copy(count)

    with at_work(report):
        yield


@contextmanager
def copied_site(clusters: Mapping[str, KafkaBroker], file: Path, more: str = "") -> Iterator[Site]:
    """Make a site with ``COPIED`` records on both sides, and its properties file."""
    name = uuid.uuid4().hex[:8]
    x, y, topic, group = f"x{name}", f"y{name}", f"Payments{name}", f"billing{name}"
    bootstraps = (clusters["P"].bootstrap, clusters["B"].bootstrap)
    config = configure(
        file,
        dict(zip((x, y), bootstraps, strict=True)),
        f"{y}->{x}.enabled = true",
        f"topics = {topic}.*",
        f"groups = {group}",
        "sync.group.offsets.enabled = true",
        more,
    )
    with open_cluster(config, x) as source, open_cluster(config, y) as target:
        site = Site(source, target, bootstraps, topic, group)
        source.create_topics([TopicSpec(topic, 1, 1, {})])
        target.create_topics([TopicSpec(site.remote, 1, 1, {})])
        site.produce(COPIED)
        site.record_copy(COPIED)
        yield site


def _answer(choice: str, shown: dict[str, str], over: threading.Event) -> None:
    from airflow.models.hitl import HITLDetail  # noqa: PLC0415 - after conftest
    from airflow.models.trigger import handle_event_submit  # noqa: PLC0415
    from airflow.triggers.base import TriggerEvent  # noqa: PLC0415
    from airflow.utils.session import create_session  # noqa: PLC0415
    from airflow.utils.state import TaskInstanceState  # noqa: PLC0415
    from sqlalchemy import select  # noqa: PLC0415
    from sqlalchemy.exc import OperationalError  # noqa: PLC0415

    answered = None
    # Once may be too few: `dag.test` writes the task's state of before the answer now and then.
    while not over.wait(0.2):
        is_open = HITLDetail.responded_at.is_(None) | (HITLDetail.ti_id == answered)
        # SQLite has one writer, and refuses a second one at once that reads when it begins.
        with suppress(OperationalError), create_session() as session:
            for detail in session.scalars(select(HITLDetail).where(is_open)).all():
                ti = detail.task_instance
                if ti.state != TaskInstanceState.AWAITING_INPUT:
                    continue
                shown.update(subject=detail.subject, body=detail.body or "")
                detail.chosen_options = [choice]
                detail.responded_at = datetime.now(UTC)
                detail.responded_by = {"id": "17", "name": "ada"}
                session.flush()
                event = TriggerEvent(detail.as_resume_event_payload())
                handle_event_submit(event, task_instance=ti, session=session)
                session.commit()
                answered = detail.ti_id
