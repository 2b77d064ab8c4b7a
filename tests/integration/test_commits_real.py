"""``srm replicate`` alone: commits arrive on the target by themselves, topic settings too."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from tests.overrides import overrides
from tests.replicating import application_of, configure
from tests.waiting import DEADLINE_S, eventually

from srm.config.model import Config
from srm.domain.groups.checkpoints import CheckpointOutcome
from srm.domain.groups.mm2_records import NewCommits, OffsetCommit
from srm.domain.names.internal_topics import CONSUMER_OFFSETS
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.cluster_ports import TopicSpec
from srm.engine.groups.checkpoints import survey
from srm.engine.groups.group_sync import sync
from srm.engine.ports import FlowContext
from srm.engine.status.observing import flow_status
from srm.kafka.tables.topic_tail import KafkaCommitTail
from srm.wiring import open_flow
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

RECORDS = 50
START_S = 300.0
IN_TIME_S = 60.0
"""On a busy machine; a commit takes a second on an idle one."""


class Site:
    """Two clusters under aliases of a test, and one topic on the first."""

    def __init__(self, clusters: Mapping[str, KafkaBroker], home: Path) -> None:
        self.topic = f"t{uuid.uuid4().hex[:6]}"
        self.flow = Flow(f"P{self.topic}", f"B{self.topic}")
        self.path = home / "srm.properties"
        self.config: Config = configure(
            self.path,
            {self.flow.source: clusters["P"].bootstrap, self.flow.target: clusters["B"].bootstrap},
            f"topics = {self.topic}",
            f"groups = {self.topic}.*",
            "heartbeats.replication.enabled = false",
            "sync.group.offsets.enabled = true",
            "emit.checkpoints.interval.seconds = 3600",
            "sync.topic.configs.interval.seconds = 1",
        )
        self.bootstrap = clusters["P"].bootstrap
        self.partition = TopicPartition(self.topic, 0)
        self.remote = TopicPartition(f"{self.flow.source}.{self.topic}", 0)

    def produce(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(count):
            producer.produce(self.topic, str(number).encode(), partition=0)
        assert producer.flush(DEADLINE_S) == 0

    def read(self, group: str, count: int) -> int:
        """Read as a member of a group, commit, leave; return the offset."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([self.topic])
        messages = []
        while len(messages) < count:
            messages += consumer.consume(count - len(messages), 1.0)
        consumer.commit(message=messages[-1], asynchronous=False)
        consumer.close()
        return int(messages[-1].offset() or 0) + 1


@pytest.fixture
def site(clusters: Mapping[str, KafkaBroker], tmp_path: Path) -> Site:
    return Site(clusters, tmp_path)


@pytest.fixture
def opened(site: Site) -> Iterator[FlowContext]:
    with open_flow(site.config, site.flow) as context:
        context.source.create_topics([TopicSpec(site.topic, 1, 1, {})])
        yield context


@pytest.fixture
def application(site: Site, tmp_path: Path) -> Iterator[Path]:
    """Run the command as a user does; its output is in the returned file."""
    log = tmp_path / "replicate.log"
    with application_of(site.path, log):
        yield log


@pytest.mark.usefixtures("opened", "application")
def test_the_offset_of_a_group_is_on_the_target_seconds_after_its_commit(
    site: Site, opened: FlowContext
) -> None:
    group, target = f"{site.topic}-group", opened.target
    site.produce(RECORDS)
    committed = site.read(group, 20)

    def resumes_with() -> bytes | None:
        at = target.committed_offsets(group).get(site.remote)
        if at is None:
            return None
        record = target.first_records([(site.remote, at)])[site.remote, at]
        return None if record is None else record.value

    def arrives(offset: int) -> float:
        began = time.monotonic()
        eventually(
            lambda: resumes_with() == str(offset).encode(), "the group resumes there", START_S
        )
        return time.monotonic() - began

    arrives(committed)
    driver = flow_status(opened).driver
    assert driver is not None
    assert driver.duties == ("checkpoints", "commits", "group-offsets", "topics")
    took = [arrives(site.read(group, 5)) for _ in range(3)]
    sys.stdout.write(f"a commit is on the target after {sorted(took)} s\n")
    assert sorted(took)[1] < IN_TIME_S

    opened.source.alter_topic_configs({site.topic: {"retention.ms": "123456789"}})
    eventually(
        lambda: (
            overrides(opened.target, [site.remote.topic])[site.remote.topic].get("retention.ms")
            == "123456789"
        ),
        "settings of the topic follow",
    )


def test_commits_are_read_with_their_group_partition_and_topic_id(
    site: Site, opened: FlowContext
) -> None:
    """As the broker of this version writes them, plain and in a transaction."""
    group = f"{site.topic}-group"
    opened.source.commit_idle(group, {site.partition: 0})
    count = opened.source.partition_counts()[CONSUMER_OFFSETS]
    ends = opened.source.log_ends(
        [TopicPartition(CONSUMER_OFFSETS, number) for number in range(count)]
    )
    props = {"bootstrap.servers": site.bootstrap}
    commits, found = NewCommits(), list[OffsetCommit]()
    with KafkaCommitTail(props, ends) as tail:

        def sees(number: int) -> None:
            def enough() -> bool:
                taken = [commits.take(*pair) for pair in tail.poll(0.5)]
                found.extend(one for one in taken if one is not None and one.group == group)
                return len(found) >= number

            eventually(enough, f"{number} commits are read")

        opened.source.commit_idle(group, {site.partition: 7})
        sees(1)
        producer = Producer({**props, "transactional.id": group})
        producer.init_transactions(DEADLINE_S)
        consumer = Consumer({**props, "group.id": group, "enable.auto.commit": False})
        for offset, ends_it in (
            (8, producer.abort_transaction),
            (9, producer.commit_transaction),
        ):
            producer.begin_transaction()
            place = KafkaPartition(site.topic, 0, offset)
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction([place], metadata, DEADLINE_S)
            ends_it(DEADLINE_S)
        sees(2)
        consumer.close()

    topic_id = opened.source.topics()[site.topic].topic_id
    assert {(one.group, one.partition) for one in found} == {(group, site.partition)}
    assert {one.topic_id for one in found} <= {"", topic_id}
    sys.stdout.write(f"{found}\n")
    assert len(found) == 2, "the aborted one is not seen"


def test_groups_deleted_on_both_clusters_between_look_and_write_stay_deleted(
    site: Site, opened: FlowContext
) -> None:
    """Each group is deleted by sync's own writer, just before it commits."""
    source, target = opened.source, opened.target
    target.create_topics([TopicSpec(site.remote.topic, 1, 1, {})])
    site.produce(RECORDS)
    names = [f"{site.topic}-{number}" for number in range(200)]
    kept = {names[0], names[1]}
    for name in names:
        source.commit_idle(name, {site.partition: 10})
        target.commit_idle(name, {site.remote: 1})
    facts = [
        CheckpointOutcome(
            *(name, site.partition, 10, "translated", "forward", site.remote, 10, 10),
        )
        for name in names
    ]
    look = replace(survey(opened, names), outcomes=tuple(facts))
    commit = target.commit_idle

    def commit_late(group: str, offsets: Mapping[TopicPartition, int]) -> None:
        for cluster in (target, source) if group not in kept else (source,):
            cluster.delete_groups([group])
        commit(group, offsets)

    target.commit_idle = commit_late  # type: ignore[method-assign]
    done = sync(opened, names, look=lambda: look)

    assert {one.group for one in done.decisions if one.applied} == kept
    assert done.applied == len(kept)
    there, _ = target.commits_of(names)
    assert {name for name, commits in there.items() if commits} == kept
    assert not any(source.commits_of(names)[0].values())
