"""Fetch and put together what :mod:`srm.domain.groups.translation` decides on.

Read commits first, then where the logs start, then the maps, then where the logs end: what is
written in between then counts as not copied yet, never the other way round. Starts are read before
the maps because maps are read around them; they may grow at any moment, after the look too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from srm.domain.groups.translation import Direction, LogRange, Losses, PartitionFacts, wanted_of
from srm.domain.names.topics import TopicPartition
from srm.domain.names.transactions import OpenTransaction
from srm.domain.offset_map.map_wanted import Wanted
from srm.engine.ports import Cluster, FlowMaps, MapReader

Logs = Mapping[TopicPartition, LogRange]


Starts = Mapping[TopicPartition, int]


def starts_of(cluster: Cluster, partitions: Collection[TopicPartition]) -> Starts:
    """Return the first offsets that the logs hold of the partitions that exist.

    Raises:
        SrmError: the cluster does not answer.
    """
    return cluster.log_starts(partitions) if partitions else {}


def logs_of(
    cluster: Cluster, partitions: Collection[TopicPartition], known: Starts | None = None
) -> dict[TopicPartition, LogRange]:
    """Return the logs of the partitions that exist, as far as their starts are known beforehand.

    Raises:
        SrmError: the cluster does not answer.
    """
    if not partitions:
        return {}
    starts = starts_of(cluster, partitions) if known is None else known
    ends = cluster.high_watermarks(partitions)
    # Asked last: what a plain producer writes meanwhile must not look like an open transaction.
    stable = cluster.log_ends(partitions)
    return {
        p: LogRange(start, min(stable[p], ends[p]), ends[p])
        for p, start in starts.items()
        if p in stable and p in ends
    }


class WantedMaps:
    """Collects what will be translated, by the partition that the map is of."""

    def __init__(self) -> None:
        self._found: dict[TopicPartition, Wanted] = {}

    def add(
        self,
        direction: Direction,
        upstream: tuple[TopicPartition, Starts],
        downstream: tuple[TopicPartition, Starts],
        offsets: Iterable[int | None],
        also: Iterable[int | None] = (),
    ) -> None:
        """Add a partition and its counterpart, each with the starts of its cluster's logs.

        Args:
            direction: of the translation.
            upstream: the partition that is committed in.
            downstream: its counterpart.
            offsets: to be translated.
            also: offsets of the counterpart to count from or to.
        """
        original = upstream[0] if direction == "forward" else downstream[0]
        wanted = wanted_of(
            direction,
            (*offsets, upstream[1].get(upstream[0])),
            (*also, downstream[1].get(downstream[0])),
        )
        self._found[original] = self._found.get(original, Wanted()) | wanted

    def load(self, reader: MapReader) -> FlowMaps:
        """Load the maps; nothing is asked where nothing is wanted."""
        topics = {partition.topic for partition in self._found}
        return reader.load(topics, self._found) if topics else FlowMaps({})


def losses_of(maps: FlowMaps, original: TopicPartition) -> Losses:
    """Return what the copy of a partition has noted as lost."""
    return Losses.of(maps.notes.get(original, ()), (maps.statuses or {}).get(original))


def partition_facts(
    maps: FlowMaps,
    direction: Direction,
    upstream: tuple[TopicPartition, Logs],
    downstream: tuple[TopicPartition, Logs],
    target: str,
    transactions: tuple[OpenTransaction, ...] = (),
) -> PartitionFacts:
    """Put together what is known of one partition.

    Args:
        maps: of the flow that copies the partition; in reverse, that of the opposite flow.
        direction: of the translation.
        upstream: the partition that is committed in, and the logs of its cluster.
        downstream: its counterpart, and the logs of that cluster.
        target: alias of the counterpart's cluster.
        transactions: open ones in ``upstream``.
    """
    original = upstream[0] if direction == "forward" else downstream[0]
    return PartitionFacts(
        direction,
        upstream[0],
        downstream[0],
        target,
        upstream[1].get(upstream[0]),
        downstream[1].get(downstream[0]),
        maps.get(original),
        maps.errors.get(original, ""),
        losses_of(maps, original),
        transactions,
        maps.gaps.get(original, ""),
    )
