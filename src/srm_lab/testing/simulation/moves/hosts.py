"""Machines that moves run on: each has a clock and a network of its own, and may stop in a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from srm.engine.cluster_ports import Cluster
from srm.errors import UnavailableError
from srm_lab.testing.clock import FakeClock
from srm_lab.testing.fake_cluster import FakeCluster

_WRITES: Final = frozenset(
    {"commit_idle", "set_share_starts", "deny_writes", "allow_writes", "remove_static_members"}
)


@dataclass(eq=False)
class Host:
    """One machine.

    Attributes:
        name: of the machine.
        clock: the true time.
        skew_ms: how far its clock is ahead.
        cut_from: aliases of the clusters that it does not reach.
        stall_at: the number of the write before which it stops for a while; 0: never.
        meanwhile: the actions of the others in that time.
    """

    name: str
    clock: FakeClock
    skew_ms: int = 0
    cut_from: set[str] = field(default_factory=set)
    stall_at: int = 0
    meanwhile: Callable[[], None] = lambda: None
    writes: int = 0

    def now_ms(self) -> int:
        """Return the time by its clock."""
        return self.clock() + self.skew_ms

    def view(self, cluster: FakeCluster) -> Cluster:
        """Return a cluster as this host reaches it."""
        return cast("Cluster", _View(self, cluster))

    def reach(self, alias: str) -> None:
        """Raise UnavailableError where a cluster is cut off."""
        if alias in self.cut_from:
            raise UnavailableError(f"{self.name} does not reach cluster {alias}; retry")

    def write(self, act: Callable[..., Any], *args: Any, **settings: Any) -> Any:
        """Carry a write out; the host stops before one of them, and wakes up late."""
        self.writes += 1
        if self.writes == self.stall_at:
            self.meanwhile()
        return act(*args, **settings)


class _View:
    """A cluster with the network of a host between."""

    def __init__(self, host: Host, cluster: FakeCluster) -> None:
        self._host = host
        self._cluster = cluster
        self.alias = cluster.alias

    def __getattr__(self, name: str) -> Any:
        self._host.reach(self.alias)
        found = getattr(self._cluster, name)
        if name not in _WRITES:
            return found
        return lambda *args, **settings: self._host.write(found, *args, **settings)

    def compacted_topic(self, topic: str, partition: int = 0) -> _Table:
        return _Table(self._host, self.alias, self._cluster.compacted_topic(topic, partition))

    def control_writer(self, transactional_id: str) -> _Table:
        self._host.reach(self.alias)
        writer = self._cluster.control_writer(transactional_id)
        return _Table(self._host, self.alias, writer)


class _Table:
    """A compacted topic, or a writer of control records, likewise."""

    def __init__(self, host: Host, alias: str, table: Any) -> None:
        self._host = host
        self._alias = alias
        self._table = table

    def __getattr__(self, name: str) -> Any:
        self._host.reach(self._alias)
        return getattr(self._table, name)

    def write(self, records: Mapping[Any, Any], *args: Any, **settings: Any) -> Any:
        self._host.reach(self._alias)
        return self._host.write(self._table.write, records, *args, **settings)
