"""Fetch and put together what :mod:`srm.domain.translation` decides on.

Read commits first, then the maps, then the logs: what is written in between then counts as not
copied yet, never the other way round.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from srm.domain.topics import TopicPartition
from srm.domain.transactions import OpenTransaction
from srm.domain.translation import Direction, Log, Losses, PartitionFacts
from srm.engine.ports import Cluster, FlowMaps

Logs = Mapping[TopicPartition, Log]


def logs_of(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Log]:
    """Return the logs of the partitions that exist.

    Raises:
        SrmError: the cluster does not answer.
    """
    if not partitions:
        return {}
    starts, ends = cluster.log_starts(partitions), cluster.high_watermarks(partitions)
    # Asked last: what a plain producer writes meanwhile must not look like an open transaction.
    stable = cluster.log_ends(partitions)
    return {
        p: Log(start, min(stable[p], ends[p]), ends[p])
        for p, start in starts.items()
        if p in stable and p in ends
    }


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
    )
