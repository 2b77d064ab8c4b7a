"""Data that one source loop has fetched and each target broker has not yet accepted.

A slow or silent target broker fills only its share, and fetches for the others continue. A broker
alone has the whole limit, with another full one half of it, and so on, but at least an eighth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from srm.replication.partition.partition import PartitionCopy


class Backlog:
    """Weighs the target brokers of one source loop."""

    def __init__(self) -> None:
        self._node_of: dict[PartitionCopy, int] = {}
        self._copies: defaultdict[int, dict[PartitionCopy, None]] = defaultdict(dict)
        self._waiting: defaultdict[int, dict[PartitionCopy, None]] = defaultdict(dict)
        self._held: set[int] = set()
        self.bytes = 0
        """Bytes waiting for all brokers at the last weighing."""

    def add(self, copy: PartitionCopy, node: int) -> None:
        """Count a partition that goes to a target node."""
        self.remove(copy)
        self._node_of[copy] = node
        self._copies[node][copy] = None

    def remove(self, copy: PartitionCopy) -> None:
        """Count a partition no more."""
        node = self._node_of.pop(copy, None)
        if node is None:
            return
        del self._copies[node][copy]
        self._waiting[node].pop(copy, None)
        if not self._copies[node]:
            del self._copies[node], self._waiting[node]
            self._held.discard(node)

    def on_data(self, copy: PartitionCopy) -> None:
        """Something was fetched for a partition."""
        self._waiting[self._node_of[copy]][copy] = None

    def holds_back(self, copy: PartitionCopy) -> bool:
        """Return whether a partition is not fetched because its target broker is full."""
        return self._node_of[copy] in self._held

    def weigh(self, limit: int) -> Collection[PartitionCopy] | None:
        """Return the partitions to pause or resume; None while all brokers are full.

        A full broker's partitions are paused until half of its share is accepted, and each change
        goes to the source broker. If all are full, the fetch loop just waits.
        """
        waiting = {node: self._weight(node) for node in self._copies}
        self.bytes = sum(waiting.values())
        shares = {
            node: max(limit / 8, limit - (self.bytes - weight) / 2)
            for node, weight in waiting.items()
        }
        full = {node for node, weight in waiting.items() if weight >= shares[node]}
        held = {node for node in self._held if waiting[node] > shares[node] / 2}
        if len(full | held) == len(self._copies):
            return None
        changed, self._held = self._held ^ (full | held), full | held
        return [copy for node in changed for copy in self._copies[node]]

    def _weight(self, node: int) -> int:
        left = {copy: None for copy in self._waiting[node] if copy.waiting_bytes}
        self._waiting[node] = left
        return sum(copy.waiting_bytes for copy in left)
