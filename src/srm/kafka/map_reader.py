"""Reads the offset maps of a flow from its target."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from typing import Final

from srm.domain import internal_topics
from srm.domain.map_records import MAP_PARTITIONS, map_partition
from srm.domain.replication_state import decode_state
from srm.domain.topics import Flow
from srm.engine.map_assembly import assemble, newest_topic_ids
from srm.engine.ports import Cluster, FlowMaps, TopicDescription
from srm.engine.state_topic import StateTopic
from srm.errors import UnavailableError

_SOURCE_RETRY_S: Final = 30.0
_logger = logging.getLogger(__name__)


class KafkaMapReader:
    """Loads offset maps (implements the engine's MapReader); works over any Cluster.

    Args:
        cluster_with_records: the flow's target, which holds the state topics.
        source_cluster: the flow's source; if it does not answer, the topics are those that were
            copied last.
        flow: the flow.
    """

    def __init__(self, cluster_with_records: Cluster, source_cluster: Cluster, flow: Flow) -> None:
        self._target = cluster_with_records
        self._source = source_cluster
        self._flow = flow
        self._source_asked_again_at = 0.0

    def load(self, topics: Collection[str]) -> FlowMaps:
        """Load the maps of the given source topics, as they are now on both sides."""
        wanted = frozenset(topics)
        source = self._source_topics()
        target_ids = {found.topic_id for found in self._target.topics().values()}
        # The state comes first: a position never speaks of runs that the blocks do not have yet.
        state = decode_state(StateTopic(self._target, self._flow.source).read())
        if source is None:
            blocks = self._blocks(range(MAP_PARTITIONS))
            ids = newest_topic_ids(wanted, state, blocks, target_ids)
        else:
            current = [source[name] for name in wanted if name in source]
            ids = {found.name: found.topic_id for found in current}
            blocks = self._blocks(_map_partitions(current))
        return assemble(ids, target_ids, state, blocks)

    def _source_topics(self) -> Mapping[str, TopicDescription] | None:
        """Describe the source's topics; None while it does not answer.

        A cluster that is down costs the whole time limit of the call, so it is not asked each time.
        """
        if time.monotonic() < self._source_asked_again_at:
            return None
        try:
            return self._source.topics()
        except UnavailableError as error:
            _logger.warning("maps of %s are read without their source: %s", self._flow, error)
            self._source_asked_again_at = time.monotonic() + _SOURCE_RETRY_S
            return None

    def _blocks(self, partitions: Collection[int]) -> dict[bytes, bytes]:
        topic = internal_topics.offset_map(self._flow.source)
        blocks: dict[bytes, bytes] = {}
        for partition in sorted(partitions):
            blocks.update(self._target.compacted(topic, partition).read())
        return blocks


def _map_partitions(topics: Collection[TopicDescription]) -> set[int]:
    return {map_partition(t.name, n) for t in topics for n in range(t.partitions)}
