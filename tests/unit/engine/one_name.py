"""Two clusters whose flows both copy Payments under its name.

B has written 400 payments and P 100, then each was copied::

    P    p0..p99, b0..b399     offsets 0..499
    B    b0..b399, p0..p99     offsets 0..499
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from srm.config.loader import load_config
from srm.config.model import FlowConfig
from srm.domain.flow_state.replication_state import CopiedTopic
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import Position, Run
from srm.engine.ports import FlowContext
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.fake_compacted import FakeMapReader
from srm_lab.testing.flows import FakeClock

THERE, BACK = Flow("P", "B"), Flow("B", "P")
PLACE = TopicPartition("Payments", 0)
GROUP = "billing"
FILE = """clusters = P, B
P.bootstrap.servers = localhost:1
B.bootstrap.servers = localhost:2
P->B.enabled = true
B->P.enabled = true
topics = Payments
groups = .*
replication.factor = 1
sync.group.offsets.enabled = true
replication.policy.class = IdentityReplicationPolicy
"""


class OneName:
    """Both clusters in memory, with maps of both flows; :meth:`record` stores what each copied."""

    def __init__(self, folder: Path, lines: str = "") -> None:
        file = folder / "srm.properties"
        file.write_text(FILE + lines)
        self.config = load_config(file)
        self.clusters = {alias: FakeCluster(alias) for alias in "PB"}
        for cluster in self.clusters.values():
            cluster.add_topic("Payments")
            cluster.produce("Payments", 0, 500)
        self.maps = {flow: FakeMapReader() for flow in (THERE, BACK)}
        self.maps[THERE].put(PLACE, [Run(0, 400, 100)], Position(500, 500, 500))
        self.maps[BACK].put(PLACE, [Run(0, 100, 400)], Position(500, 500, 500))

    def record(self, *flows: Flow) -> None:
        ids = {alias: one.topics()["Payments"].topic_id for alias, one in self.clusters.items()}
        kafka = {alias: one.cluster_id() for alias, one in self.clusters.items()}
        for flow in flows:
            name = internal_topics.replication(flow.source)
            self.clusters[flow.target].add_topic(name, 2)
            topics = "Payments", ids[flow.source], "Payments", ids[flow.target]
            pair = CopiedTopic(*topics, kafka[flow.source], kafka[flow.target])
            self.clusters[flow.target].compacted_topic(name).write({pair.key(): pair.value()})

    def context(self, settings: FlowConfig | None = None) -> FlowContext:
        """Return P->B by these settings, those of the file by default."""
        there, back = self.maps[THERE], self.maps[BACK]
        own = settings or self.config.flow(THERE)
        sides = self.clusters["P"], self.clusters["B"]
        return replace(
            FlowContext(own, *sides, there, back, FakeClock()), opposite=self.config.flow(BACK)
        )

    def commit(self, offset: int) -> None:
        self.clusters["P"].commit(GROUP, {PLACE: offset})

    @property
    def synced(self) -> int | None:
        return self.clusters["B"].committed_offsets(GROUP).get(PLACE)
