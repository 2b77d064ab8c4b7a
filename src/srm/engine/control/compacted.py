"""Creation of the compacted topics that hold srm's state."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from srm.engine.cluster_ports import Cluster, TopicSpec

_logger = logging.getLogger(__name__)

COMPACTED_CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    # The active segment is never compacted, and every reader reads all of it.
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": str(10 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}
"""Configs of a new compacted topic unless the caller gives others."""

STAMPED: Final = {"message.timestamp.type": "LogAppendTime"}
"""Configs of a topic whose timestamps come from one clock, the broker's."""


def compacted_spec(topic: str, replication_factor: int, partitions: int = 1) -> TopicSpec:
    """Describe a compacted topic; two replicas or more survive the loss of any one broker."""
    in_sync = {"min.insync.replicas": str(min(2, replication_factor))}
    configs = {**COMPACTED_CONFIGS, **(in_sync if replication_factor > 0 else {})}
    return TopicSpec(topic, partitions, replication_factor, configs)


def ensure_compacted(
    cluster: Cluster,
    topic: str,
    partitions: int = 1,
    replication_factor: int = 1,
    extra_configs: Mapping[str, str] | None = None,
) -> None:
    """Create a compacted topic; concurrent calls are safe.

    An existing one keeps its settings except cleanup.policy, which becomes compact: retention would
    delete the state in it.
    """
    spec = compacted_spec(topic, replication_factor, partitions)
    configs = {**spec.configs, **(extra_configs or {})}
    cluster.create_topics([replace(spec, configs=configs)])
    wanted = configs["cleanup.policy"]
    found = cluster.topic_configs([topic]).get(topic, {}).get("cleanup.policy")
    if found != wanted:
        _logger.warning(
            "topic %s on cluster %s had cleanup.policy=%s, now %s: it holds state of srm",
            topic,
            cluster.alias,
            found or "the broker's default",
            wanted,
        )
        cluster.alter_topic_configs({topic: {"cleanup.policy": wanted}})
