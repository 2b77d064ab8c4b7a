"""Topics of a flow on its target: its state, and the raw metrics of components other than slots."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Final

from srm.config.model import FlowConfig
from srm.domain.flow_state.replication_records import COMMANDS, REPORTS, AssignedPartition
from srm.domain.names import internal_topics
from srm.engine.cluster_ports import Cluster, TopicDescription, TopicSpec
from srm.engine.ports import FlowContext
from srm.errors import SrmError


class StateTopic:
    """Records of a flow's state topic by key, from both partitions."""

    def __init__(self, target: Cluster, source: str) -> None:
        topic = internal_topics.replication(source)
        self._commands = target.compacted_topic(topic, COMMANDS)
        self._reports = target.compacted_topic(topic, REPORTS)

    def read(self) -> dict[bytes, bytes]:
        """Return all records; a missing topic or partition reads empty."""
        return {**self._commands.read(), **self._reports.read()}

    def read_commands(self) -> dict[bytes, bytes]:
        return self._commands.read()

    def write(self, records: Mapping[bytes, bytes | None]) -> None:
        """Write to the partition of commands and wait for the acknowledgement."""
        self._commands.write(records)


logger = logging.getLogger(__name__)

_ONE_DAY: Final = {"cleanup.policy": "delete", "retention.ms": str(24 * 60 * 60 * 1000)}


def assignments(topic: TopicDescription, remote: TopicDescription) -> list[AssignedPartition]:
    """Return the partitions of a topic that its remote topic has, too."""
    return [
        AssignedPartition(topic.name, number, topic.topic_id, remote.name, remote.topic_id)
        for number in range(min(topic.partitions, remote.partitions))
    ]


def raw_metrics_spec(config: FlowConfig) -> TopicSpec:
    topic = internal_topics.raw_metrics(config.flow.source)
    return TopicSpec(topic, 1, config.internal_replication_factor, _ONE_DAY)


def write_metrics(context: FlowContext, component: str, values: Collection[bytes]) -> bool:
    """Write raw records of a ``component``, return if any were written; log a failure."""
    if not values:
        return False
    spec = raw_metrics_spec(context.config)
    try:
        # A replicator may never have run; a producer would wait long for a missing topic.
        if spec.name not in context.target.partition_counts():
            context.target.create_topics([spec])
        table = context.target.compacted_topic(spec.name)
        for value in values:
            table.write({component.encode(): value})
    except SrmError as error:
        logger.warning("%s: no metrics of %s: %s", context.config.flow, component, error)
        return False
    return True
