"""Checkpoints and group sync on real brokers, for both group protocols, through the commands too.

The copies and their maps are made by hand, with exact offsets, so that every number is known.
"""

from __future__ import annotations

import json
import struct
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from tests.replicating import configure
from tests.slot_reports import records_of
from tests.waiting import DEADLINE_S, eventually
from typer.testing import CliRunner

from srm.cli.main import app
from srm.config.model import Config
from srm.domain.flow_state.replication_records import (
    REPORTS,
    STATE_PARTITIONS,
    PartitionPosition,
    SlotReport,
)
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.map_records import MAP_PARTITIONS, MapBlock, map_partition
from srm.domain.offset_map.offset_map import Position, Run
from srm.engine.cluster_ports import Cluster, TopicSpec
from srm.engine.control import topic_sync
from srm.engine.groups import checkpoints, group_sync, offsets_export
from srm.engine.groups.ledger import read_ledger
from srm.engine.ports import FlowContext
from srm.wiring import open_flow
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

RECORDS = 40
WRITTEN_MS = time.time_ns() // 1_000_000  # a copy has its original's time
SHIFT = 3  # the replica begins with so many records of somebody else
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@dataclass
class Sites:
    """Both clusters under aliases of this test alone, so that no internal topic is shared."""

    config: Config
    path: Path
    there: Flow

    def bootstrap(self, alias: str) -> str:
        return self.config.client(alias, "consumer")["bootstrap.servers"]


@pytest.fixture
def sites(clusters: Mapping[str, KafkaBroker], tmp_path: Path) -> Sites:
    tag = uuid.uuid4().hex[:6]
    p, b = f"P{tag}", f"B{tag}"
    path, flow = tmp_path / "srm.properties", Flow(p, b)
    config = configure(
        path,
        {p: clusters["P"].bootstrap, b: clusters["B"].bootstrap},
        f"{flow.reverse}.enabled = true",
        f"topics = {tag}",
        f"groups = {tag}.*",
        "heartbeats.replication.enabled = false",
        "sync.group.offsets.enabled = true",
        f"{flow.reverse}.reverse.checkpointing.enabled = true",
        f"{flow.reverse}.reverse.checkpointed.topics = {p}\\\\.{tag}",
    )
    return Sites(config, path, flow)


@dataclass
class Copied:
    """One topic on P with its exact copy on B."""

    sites: Sites
    forward: FlowContext
    back: FlowContext

    def __post_init__(self) -> None:
        self.tag = self.sites.there.source[1:]
        self.topic, self.replica = self.tag, f"{self.sites.there.source}.{self.tag}"
        self.group = f"{self.tag}-billing"

    @property
    def here(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    @property
    def there(self) -> TopicPartition:
        return TopicPartition(self.replica, 0)

    def copy(self) -> None:
        """Write the records on both sides, and the map that says which is which."""
        self.forward.source.create_topics(
            [TopicSpec(self.topic, 1, 1, {"retention.ms": "999999999"})]
        )
        created = [topic.name for topic in topic_sync.sync(self.forward).create]
        assert self.replica in created
        values = [f"payment {number}" for number in range(RECORDS)]
        _produce(self.sites.bootstrap(self.sites.there.source), self.topic, values)
        foreign = [f"foreign {number}" for number in range(SHIFT)]
        _produce(self.sites.bootstrap(self.sites.there.target), self.replica, foreign + values)
        self._map(Run(0, SHIFT, RECORDS))

    def _map(self, run: Run) -> None:
        source, target = self.forward.source, self.forward.target
        topic_id = source.topics()[self.topic].topic_id
        block = MapBlock(
            self.topic, topic_id, 0, target.topics()[self.replica].topic_id, (1,), (run,)
        )
        alias = self.sites.there.source
        compact = {"cleanup.policy": "compact"}
        target.create_topics(
            [
                TopicSpec(internal_topics.offset_map(alias), MAP_PARTITIONS, 1, compact),
                TopicSpec(internal_topics.replication(alias), STATE_PARTITIONS, 1, compact),
            ]
        )
        target.compacted_topic(
            internal_topics.offset_map(alias), map_partition(block.topic, block.partition)
        ).write({block.key(): block.value()})
        position = Position(run.source_end, run.target_end, run.source_end)
        entry = PartitionPosition(topic_id, 0, block.target_topic_id, position, 1, 0)
        report = SlotReport("0", 1, self.forward.now_ms(), (entry,))
        target.compacted_topic(internal_topics.replication(alias), REPORTS).write(
            records_of(report)
        )


@pytest.fixture
def copied(sites: Sites) -> Iterator[Copied]:
    with (
        open_flow(sites.config, sites.there) as forward,
        open_flow(sites.config, sites.there.reverse) as back,
    ):
        made = Copied(sites, forward, back)
        made.copy()
        yield made


def _produce(bootstrap: str, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value.encode(), partition=0, timestamp=WRITTEN_MS)
    assert producer.flush(DEADLINE_S) == 0


class Application:
    """A consumer as people write them: subscribes, reads some records, commits, leaves."""

    def __init__(self, bootstrap: str, group: str, topic: str, protocol: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.subscribe([topic])
        self._topic = topic

    def read(self, count: int) -> list[str]:
        """Read exactly ``count`` records and commit after the last of them."""
        values: list[str] = []
        deadline = time.monotonic() + 120
        while len(values) < count:
            assert time.monotonic() < deadline, f"only {len(values)} of {count} records came"
            message = self._consumer.poll(0.5)
            if message is not None:
                assert message.error() is None, message.error()
                values.append((message.value() or b"").decode())
                last = message
        self._consumer.commit(
            offsets=[KafkaPartition(self._topic, 0, last.offset() + 1)], asynchronous=False
        )
        return values

    def leave(self) -> None:
        self._consumer.close()


def _application(copied: Copied, alias: str, protocol: str) -> Application:
    topic = copied.topic if alias == copied.sites.there.source else copied.replica
    return Application(copied.sites.bootstrap(alias), copied.group, topic, protocol)


def _read_and_leave(copied: Copied, alias: str, protocol: str, count: int) -> list[str]:
    application = _application(copied, alias, protocol)
    values = application.read(count)
    application.leave()
    _wait_until_idle(
        copied.forward.source if alias == copied.sites.there.source else copied.forward.target,
        copied.group,
    )
    return values


def _wait_until_idle(cluster: Cluster, group: str) -> None:
    eventually(
        lambda: cluster.groups([group])[group].state in {"empty", "dead"}, f"{group} has left"
    )


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


@PROTOCOLS
def test_a_group_goes_over_and_comes_back_without_reading_anything_twice(
    copied: Copied, protocol: str
) -> None:
    p, b = copied.sites.there.source, copied.sites.there.target
    assert _read_and_leave(copied, p, protocol, 10)[-1] == "payment 9"

    emitted = checkpoints.emit(copied.forward)
    synced = group_sync.sync(copied.forward)

    assert (emitted.written, emitted.errors, synced.applied) == (1, {}, 1)
    table = copied.forward.target.compacted_topic(internal_topics.checkpoints(p)).read()
    topics = copied.forward.source.topics(), copied.forward.target.topics()
    ids = f"srm:{topics[0][copied.topic].topic_id}:{topics[1][copied.replica].topic_id}"
    assert table == {
        _string(copied.group) + _string(copied.replica) + struct.pack(">i", 0): struct.pack(
            ">hqq", 0, 10, 10 + SHIFT
        )
        + _string(ids)
    }
    assert copied.forward.target.committed_offsets(copied.group) == {copied.there: 10 + SHIFT}

    assert _read_and_leave(copied, b, protocol, 15) == [f"payment {n}" for n in range(10, 25)]
    assert checkpoints.emit(copied.back).states == {"translated": 1}
    assert group_sync.sync(copied.back).applied == 1
    assert copied.forward.source.committed_offsets(copied.group) == {copied.here: 25}

    # Both flows again: what srm itself wrote is where the group stands, but no progress of it.
    assert checkpoints.emit(copied.forward).written == 1
    assert group_sync.sync(copied.forward).actions == {"own-write": 1}
    [checkpoint] = offsets_export.checkpoints(copied.forward.target, copied.sites.there)
    assert checkpoint.downstream_offset == 25 + SHIFT
    assert _read_and_leave(copied, p, protocol, 15) == [f"payment {n}" for n in range(25, 40)]


@PROTOCOLS
def test_a_group_with_members_keeps_its_offsets(copied: Copied, protocol: str) -> None:
    p, b = copied.sites.there.source, copied.sites.there.target
    _read_and_leave(copied, p, protocol, 30)
    alive = _application(copied, b, protocol)
    alive.read(SHIFT + 5)

    synced = group_sync.sync(copied.forward)
    [forced] = group_sync.apply_exact(copied.forward, {copied.group: {copied.there: 1}})

    assert (synced.actions, forced.action) == ({"group-active": 1}, "group-active")
    assert copied.forward.target.committed_offsets(copied.group) == {copied.there: SHIFT + 5}
    alive.leave()
    _wait_until_idle(copied.forward.target, copied.group)
    assert group_sync.sync(copied.forward).applied == 1
    assert copied.forward.target.committed_offsets(copied.group) == {copied.there: SHIFT + 30}


def test_the_ledger_is_kept_on_the_cluster_that_was_written_to(copied: Copied) -> None:
    _read_and_leave(copied, copied.sites.there.source, "classic", 10)
    group_sync.sync(copied.forward)

    ledger = read_ledger(copied.forward.target, copied.forward.target.topics())

    entry = ledger.entry(copied.group, copied.there)
    assert entry is not None
    assert (entry.previous, entry.intended, entry.settled) == (None, 10 + SHIFT, True)
    assert entry.origin == copied.sites.there.source


def test_the_commands_say_the_same_as_the_engine(copied: Copied) -> None:
    _read_and_leave(copied, copied.sites.there.source, "classic", 10)
    flow = ["--config", str(copied.sites.path), "--flow", str(copied.sites.there)]

    dry = _json("checkpoints", "emit", "--dry-run", *flow)[0]
    done = _json("checkpoints", "emit", *flow)[0]
    synced = _json("groups", "sync", *flow)[0]
    topics = _json("topics", "sync", "--dry-run", *flow)[0]
    place = ["--topic", copied.topic, "--partition", "0"]
    there = _json("translate", *flow, *place, "--offset", "10")
    back = _json("translate", *flow, *place, "--offset", str(there["to_offset"]), "--reverse")
    status = _json("status", *flow)[0]

    assert (dry["written"], done["written"], synced["applied"]) == (1, 1, 1)
    assert topics["plan"]["create"] == []
    assert (there["to_offset"], back["to_offset"], back["state"]) == (10 + SHIFT, 10, "translated")
    [topic] = status["topics"]
    assert (topic["reason"], status["errors"]) == ("", {})
    assert topic["copied"] >= RECORDS, "offsets, those of markers too: the map is not read for it"
    assert status["groups"][0]["group"] == copied.group
    for command in (["checkpoints", "emit"], ["groups", "sync"], ["topics", "sync"], ["status"]):
        shown = CliRunner().invoke(app, [*command, *flow], env={"COLUMNS": "200"})
        assert shown.exit_code == 0, shown.output
        assert str(copied.sites.there) in shown.output


def _json(*command: str) -> dict:
    result = CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
