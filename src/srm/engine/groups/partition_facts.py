"""Facts that :mod:`srm.domain.groups.translation` decides on, read in a safe order.

The order is commits, log start offsets, maps, log end offsets. Records written in between then
count as not copied yet, never as copied. Maps are loaded around the log start offsets, so those are
read first; they may grow at any time.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from srm.domain.groups.translation import (
    UNKNOWN_LOG,
    Direction,
    LogRange,
    Losses,
    PartitionFacts,
    wanted_of,
)
from srm.domain.names.topics import TopicPartition
from srm.domain.names.transactions import OpenTransaction
from srm.domain.offset_map.map_loader import Wanted
from srm.domain.offset_map.offset_map import OffsetMap
from srm.engine.cluster_ports import Cluster, Place
from srm.engine.ports import FlowMaps, MapReader
from srm.errors import SrmError

logger = logging.getLogger(__name__)

Logs = Mapping[TopicPartition, LogRange]


Starts = Mapping[TopicPartition, int]


def starts_of(cluster: Cluster, partitions: Collection[TopicPartition]) -> Starts:
    """Return the log start offsets of the existing partitions."""
    return cluster.log_starts(partitions) if partitions else {}


def logs_of(
    cluster: Cluster, partitions: Collection[TopicPartition], known: Starts | None = None
) -> dict[TopicPartition, LogRange]:
    """Return the log ranges of the existing partitions; with ``known``, only of those in it."""
    if not partitions:
        return {}
    starts = starts_of(cluster, partitions) if known is None else known
    ends = cluster.high_watermarks(partitions)
    # Read last: records that a plain producer adds must not look like an open transaction.
    stable = cluster.log_ends(partitions)
    return {
        p: LogRange(start, min(stable[p], ends[p]), ends[p])
        for p, start in starts.items()
        if p in stable and p in ends
    }


class WantedMaps:
    """Collects the offsets to translate, by source partition of the map."""

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
        """Add a partition and its counterpart, each with the log starts of its cluster.

        ``upstream`` has the commits.
        ``offsets`` are to be translated, ``also`` are offsets of the counterpart that bound counts
        of records.
        """
        original = upstream[0] if direction == "forward" else downstream[0]
        wanted = wanted_of(
            direction,
            (*offsets, upstream[1].get(upstream[0])),
            (*also, downstream[1].get(downstream[0])),
        )
        self._found[original] = self._found.get(original, Wanted()) | wanted

    def load(self, reader: MapReader) -> FlowMaps:
        """Load the maps; without offsets to translate, send no request."""
        topics = {partition.topic for partition in self._found}
        return reader.load(topics, self._found) if topics else FlowMaps({})


def past_markers(
    maps: FlowMaps,
    cluster: Cluster,
    copies: Mapping[TopicPartition, tuple[TopicPartition, int]],
    logs: Logs,
) -> FlowMaps:
    """Move the ends of maps past the markers that follow a copy: consumers commit after them.

    A slot that runs does so, too, but no translation must depend on one.

    ``copies``: by original, its copy and the largest offset to translate there, for maps of their
    flow.
    ``logs``: logs of the copies, read after the maps.
    """
    ends: dict[Place, TopicPartition] = {}
    for original, (copy, furthest) in copies.items():
        known, log = maps.get(original).known_target_end, logs.get(copy, UNKNOWN_LOG)
        if known is not None and known < furthest <= log.end < UNKNOWN_LOG.end:
            ends[copy, known] = original
    try:
        found = cluster.first_records(ends, committed=False) if ends else {}
    except SrmError as error:
        logger.warning("markers on %s are unknown: %s", cluster.alias, error)
        return maps
    moved = dict[TopicPartition, OffsetMap]()
    for place, record in found.items():
        end = logs[place[0]].end if record is None else min(logs[place[0]].end, record.offset)
        moved[ends[place]] = maps.get(ends[place]).reaching(end)
    return replace(maps, maps={**maps.maps, **moved}) if moved else maps


def losses_of(maps: FlowMaps, original: TopicPartition) -> Losses:
    """Return the losses that the copy of a partition has noted."""
    return Losses.of(maps.notes.get(original, ()), (maps.statuses or {}).get(original))


def partition_facts(
    maps: FlowMaps,
    direction: Direction,
    upstream: tuple[TopicPartition, Logs],
    downstream: tuple[TopicPartition, Logs],
    target: str,
    transactions: tuple[OpenTransaction, ...] = (),
    back: FlowMaps | None = None,
) -> PartitionFacts:
    """Assemble the facts about one partition.

    ``upstream`` has the commits; ``maps`` are of the flow that copies, in reverse the opposite one.
    ``back``: the opposite maps, if both flows copy into one name.
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
        None if back is None else partition_facts(back, "reverse", upstream, downstream, target),
    )
