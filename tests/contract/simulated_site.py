"""A simulated cluster under the contract of the Wire port: it is held to what real brokers do."""

from __future__ import annotations

import uuid
from typing import Any

from tests.batches import Record, encode
from tests.contract.wire_sites import Scenario

from srm.domain.names.topics import TopicPartition
from srm.replication.batches.batch import rewrite, seal
from srm_lab.testing.simulation.cluster import Partition, SimulatedCluster, TopicSettings
from srm_lab.testing.simulation.connection import Network
from srm_lab.testing.simulation.loop import SimulatedLoop
from srm_lab.testing.simulation.transactions import Coordinator
from srm_lab.testing.simulation.wire import SimulatedWire

_ATTRIBUTES = slice(21, 23)
_TRANSACTIONAL = b"\x00\x10"


class SimulatedWireSite:
    """One simulated broker."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._cluster = SimulatedCluster("P", loop, brokers=1)
        self._coordinator = Coordinator(self._cluster, expiry_s=604_800.0, late_markers=0.0)
        self._open: dict[str, tuple[int, Partition]] = {}

    def run(self, scenario: Scenario) -> Any:
        wire = SimulatedWire(self._cluster, self._coordinator, Network())

        async def played() -> Any:
            return await scenario(wire)

        return self._loop.run_until_complete(played())

    def create_topic(self, partitions: int = 1) -> tuple[str, bytes]:
        name = f"t-{uuid.uuid4().hex[:12]}"
        return name, self._cluster.create_topic(name, partitions, TopicSettings()).topic_id

    def trim(self, topic: str, partition: int, start: int) -> None:
        self._partition(topic, partition).log.trim(start, self._loop.time())

    def produce_in(self, name: str, topic: str, partition: int, records: int) -> None:
        place = self._partition(topic, partition)
        producer, _ = self._open.setdefault(name, (self._coordinator.new_pid(), place))
        for _ in range(records):
            view = encode([Record(0, self._loop.now_ms(), b"key", b"value")])
            rewrite(view, producer, 0, place.log.next_sequence(producer))
            view[_ATTRIBUTES] = _TRANSACTIONAL
            seal(view)
            place.log.append(bytes(view), self._loop.time(), self._loop.now_ms())
            self._cluster.replicate(place)

    def end_transaction(self, name: str, *, commit: bool) -> None:
        producer, place = self._open.pop(name)
        now = self._loop.time(), self._loop.now_ms()
        place.log.append_marker(producer, 0, *now, commit=commit)
        self._cluster.replicate(place)

    def _partition(self, topic: str, number: int) -> Partition:
        found = self._cluster.partition(TopicPartition(topic, number))
        assert found is not None
        return found
