"""The transaction coordinator of a simulated cluster (Kafka's TransactionCoordinator)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from srm.domain.names.topics import TopicPartition
from srm.replication.ports import ProducerId
from srm_lab.testing.simulation.cluster import SimulatedCluster

NONE: Final = 0
INVALID_PRODUCER_EPOCH: Final = 47
INVALID_TXN_STATE: Final = 48
INVALID_PRODUCER_ID_MAPPING: Final = 49
CONCURRENT_TRANSACTIONS: Final = 51

_LAST_EPOCH: Final = 2**15 - 2
_TIMEOUT_S: Final = 60.0

State = Literal["empty", "ongoing", "ending", "ended"]


@dataclass(eq=False)
class _Transaction:
    pid: int
    epoch: int = -1
    state: State = "empty"
    partitions: list[TopicPartition] = field(default_factory=list)
    used_at: float = 0.0
    began: int = 0


class Coordinator:
    """Transactional ids of one cluster.

    ``late_markers`` is the chance that a marker takes seconds to reach its partition.
    """

    def __init__(self, cluster: SimulatedCluster, expiry_s: float, late_markers: float) -> None:
        self._cluster = cluster
        self._loop = cluster.loop
        self._expiry_s = expiry_s
        self._late_markers = late_markers
        self._known: dict[str, _Transaction] = {}
        self._next_pid = 1000
        self.claimed: set[int] = set()
        self.last_epoch = _LAST_EPOCH

    @property
    def is_idle(self) -> bool:
        """True if no marker is still to be written."""
        return not any(found.state in {"ongoing", "ending"} for found in self._known.values())

    def new_pid(self) -> int:
        """Return an unused producer id."""
        self._next_pid += 1
        return self._next_pid

    def init_producer_id(self, name: str) -> tuple[int, ProducerId]:
        """Answer InitProducerId."""
        now = self._loop.time()
        found = self._known.get(name)
        if found is None or (found.state != "ending" and now - found.used_at > self._expiry_s):
            found = self._known[name] = _Transaction(self.new_pid())
            self.claimed.add(found.pid)
        found.used_at = now
        if found.state == "ongoing":
            found.epoch += 1
            self._abort(found)
        if found.state == "ending":
            return CONCURRENT_TRANSACTIONS, ProducerId(-1, -1)
        if found.epoch >= self.last_epoch:
            found.pid, found.epoch = self.new_pid(), -1
            self.claimed.add(found.pid)
        found.epoch += 1
        found.state = "empty"
        return NONE, ProducerId(found.pid, found.epoch)

    def add_partition(self, name: str, producer: ProducerId, partition: TopicPartition) -> int:
        """Answer AddPartitionsToTxn."""
        found = self._known.get(name)
        error = self._check(found, producer)
        if error or found is None:
            return error or INVALID_PRODUCER_ID_MAPPING
        if self._cluster.partition(partition) is None:
            return 3
        if found.state == "ending":
            return CONCURRENT_TRANSACTIONS
        if found.state != "ongoing":
            found.state = "ongoing"
            found.partitions = []
            found.began += 1
            self._loop.world_later(_TIMEOUT_S, self._time_out, found, found.began)
        if partition not in found.partitions:
            found.partitions.append(partition)
        return NONE

    def end(self, name: str, producer: ProducerId) -> int:
        """Answer EndTxn with an abort."""
        found = self._known.get(name)
        error = self._check(found, producer)
        if error or found is None:
            return error or INVALID_PRODUCER_ID_MAPPING
        if found.state == "ended":
            return NONE
        if found.state == "ending":
            return CONCURRENT_TRANSACTIONS
        if found.state == "empty":
            return INVALID_TXN_STATE
        self._abort(found)
        return NONE

    def _check(self, found: _Transaction | None, producer: ProducerId) -> int:
        if found is None or found.pid != producer.id:
            return INVALID_PRODUCER_ID_MAPPING
        found.used_at = self._loop.time()
        return NONE if found.epoch == producer.epoch else INVALID_PRODUCER_EPOCH

    def _time_out(self, found: _Transaction, began: int) -> None:
        if found.state == "ongoing" and found.began == began:
            found.epoch += 1
            self._abort(found)

    def _abort(self, found: _Transaction) -> None:
        found.state = "ending"
        rng = self._loop.rng
        late = rng.random() < self._late_markers
        delay = rng.uniform(0.5, 8.0) if late else rng.uniform(0.0005, 0.01)
        self._loop.world_later(delay, self._write_markers, found, list(found.partitions))

    def _write_markers(self, found: _Transaction, left: list[TopicPartition]) -> None:
        cluster = self._cluster
        remaining = []
        for place in left:
            partition = cluster.partition(place)
            if partition is None:
                continue
            leader = partition.leader
            if leader is None or not cluster.brokers[leader].works:
                remaining.append(place)
                continue
            partition.log.append_marker(
                found.pid, found.epoch, self._loop.time(), self._loop.now_ms(), commit=False
            )
            cluster.replicate(partition)
        if remaining:
            self._loop.world_later(0.1, self._write_markers, found, remaining)
        else:
            found.state = "ended"
