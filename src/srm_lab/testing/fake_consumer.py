"""Consumers of a cluster in memory, which commit as the clients that people run do."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from srm.domain.names.topics import TopicPartition
from srm_lab.testing.fake_cluster import FakeCluster

Reset = Literal["earliest", "latest"]


class FakeConsumer:
    """The only consumer of a group: it has all partitions of its topics.

    ``cluster``: where it reads. ``group``: whose offsets it commits. ``topics``: those that it
    reads, as far as they exist. ``reset``: where it starts without a commit, as
    ``auto.offset.reset`` says. ``passes_markers``: it commits its position, as Java's consumer
    does. That has passed the markers at the end of what was fetched. librdkafka's stays after the
    last record. ``subscribes``: it is a member of its group; one that assigns its partitions itself
    is none.
    """

    def __init__(
        self,
        cluster: FakeCluster,
        group: str,
        topics: Collection[str],
        *,
        reset: Reset = "latest",
        passes_markers: bool = True,
        subscribes: bool = True,
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._topics = topics
        self._reset = reset
        self._passes_markers = passes_markers
        self._subscribes = subscribes
        self._positions: dict[TopicPartition, int] = {}
        if subscribes:
            cluster.join(group)

    def poll(self, most: int = 500) -> list[tuple[TopicPartition, int]]:
        """Read up to this number of records of each partition; return their places in order."""
        read: list[tuple[TopicPartition, int]] = []
        counts = self._cluster.partition_counts()
        for topic in self._topics:
            for number in range(counts.get(topic, 0)):
                place = TopicPartition(topic, number)
                offsets = self._cluster.readable(place, self._position(place))
                read += [(place, offset) for offset in offsets[:most]]
                if len(offsets) > most or (offsets and not self._passes_markers):
                    self._positions[place] = offsets[:most][-1] + 1
                elif self._passes_markers:
                    end = self._cluster.log_ends([place])[place]
                    self._positions[place] = max(self._positions[place], end)
        return read

    def commit(self) -> None:
        """Commit the position of each partition."""
        self._cluster.commit(self._group, self._positions)

    def close(self) -> None:
        """Leave the group; what was not committed is read again."""
        if self._subscribes:
            self._cluster.leave(self._group)

    def _position(self, place: TopicPartition) -> int:
        known = self._positions.get(place)
        if known is None:
            known = self._cluster.committed_offsets(self._group).get(place)
            start = self._cluster.log_starts([place])[place]
            end = self._cluster.log_ends([place])[place]
            if known is None or not start <= known <= end:
                known = end if self._reset == "latest" else start
            self._positions[place] = known
        return known
