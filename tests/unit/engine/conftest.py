"""Two sites in memory with both flows, the topic Payments on either, and exact copies of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.unit.engine.moves.control.moving import World, busy_world, config_in

from srm.config.loader import load_config
from srm.config.model import Config, FlowConfig
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import Position, Run
from srm.engine.ports import FlowContext
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.fake_compacted import FakeMapReader
from srm_lab.testing.flows import FakeClock

PROPERTIES = """
clusters = P, B
P.bootstrap.servers = localhost:1
B.bootstrap.servers = localhost:2
P->B.enabled = true
B->P.enabled = true
topics = Payments
groups = .*
replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
sync.group.offsets.enabled = true
reverse.checkpointing.enabled = true
P->B.reverse.checkpointed.topics = B.Payments
B->P.reverse.checkpointed.topics = P.Payments
"""


@dataclass
class TwoSites:
    """Clusters P and B. ``produce`` writes to Payments on one, ``copy`` replicates all of it."""

    configs: dict[Flow, FlowConfig]
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.clusters = {alias: FakeCluster(alias) for alias in ("P", "B")}
        self.maps = {flow: FakeMapReader() for flow in self.configs}
        self.runs: dict[Flow, list[Run]] = {flow: [] for flow in self.configs}
        for flow in self.configs:
            self.clusters[flow.source].add_topic("Payments")
            self.clusters[flow.target].add_topic(f"{flow.source}.Payments")

    def flow(self, text: str) -> FlowContext:
        flow = Flow.parse(text)
        return FlowContext(
            self.configs[flow],
            self.clusters[flow.source],
            self.clusters[flow.target],
            self.maps[flow],
            self.maps[flow.reverse],
            self.clock,
        )

    def change(self, text: str, **settings: object) -> None:
        flow = Flow.parse(text)
        self.configs[flow] = replace(self.configs[flow], **settings)

    def produce(self, alias: str, records: int) -> None:
        self.clusters[alias].produce("Payments", 0, records)

    def copy(self, text: str, *, records: int | None = None, claim: int = 0) -> None:
        """Copy what is not copied yet; ``claim`` markers come first in the replica."""
        flow = Flow.parse(text)
        payments, replica = self.payments, f"{flow.source}.Payments"
        target = self.clusters[flow.target]
        done = self.runs[flow][-1].source_end if self.runs[flow] else 0
        end = self.clusters[flow.source].log_ends([payments])[payments]
        count = end - done if records is None else records
        if claim:
            target.mark(replica, 0, claim)
        if count:
            last = target.produce(replica, 0, count)
            self.runs[flow].append(Run(done, last - count, count))
        place = target.log_ends([TopicPartition(replica, 0)])[TopicPartition(replica, 0)]
        position = Position(done + count, place, end)
        self.maps[flow].put(payments, self.runs[flow], position if count or not claim else None)

    @property
    def payments(self) -> TopicPartition:
        return TopicPartition("Payments", 0)

    def pairs(self, text: str) -> list[tuple[int, int]]:
        """List every copied record as (source offset, target offset)."""
        return [
            (run.source_start + i, run.target_start + i)
            for run in self.runs[Flow.parse(text)]
            for i in range(run.count)
        ]

    def commit(self, alias: str, group: str, topic: str, offset: int) -> None:
        self.clusters[alias].commit(group, {TopicPartition(topic, 0): offset})

    def committed(self, alias: str, group: str, topic: str) -> int | None:
        return self.clusters[alias].committed_offsets(group).get(TopicPartition(topic, 0))


@pytest.fixture(scope="session")
def two_site_configs(tmp_path_factory: pytest.TempPathFactory) -> dict[Flow, FlowConfig]:
    path: Path = tmp_path_factory.mktemp("config") / "srm.properties"
    path.write_text(PROPERTIES)
    config = load_config(path)
    return {flow: config.flow(flow) for flow in config.flows}


@pytest.fixture(scope="session")
def new_sites(two_site_configs: dict[Flow, FlowConfig]) -> Callable[[], TwoSites]:
    """Make fresh sites, for tests that need many."""
    return lambda: TwoSites(dict(two_site_configs))


@pytest.fixture
def sites(new_sites: Callable[[], TwoSites]) -> TwoSites:
    """Make 100 payments on P and 50 on B, all copied; the replica on B begins with a marker."""
    made = new_sites()
    made.produce("P", 100)
    made.produce("B", 50)
    made.copy("P->B", claim=1)
    made.copy("B->P")
    return made


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return config_in(tmp_path_factory.mktemp("move"))


@pytest.fixture
def world(config: Config) -> World:
    return busy_world(config)
