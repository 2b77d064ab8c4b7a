"""Limits of a cluster for clients, as its brokers have them."""

from __future__ import annotations

from collections.abc import Collection

from srm.domain.moves.limits import Limits
from srm.engine.cluster_ports import Cluster, tolerate
from srm.errors import AuthorizationError

_SIZE = "max.message.bytes"


def read_limits(cluster: Cluster, topics: Collection[str]) -> Limits:
    """Read the limits of a cluster, for some topics; what srm may not see is not known."""
    configs = cluster.broker_configs()
    trouble = f"limits of {cluster.alias} for clients"
    found = tolerate(lambda: cluster.topic_settings(topics), trouble, AuthorizationError) or {}
    return Limits(
        cluster.alias,
        configs,
        cluster.group_kinds(),
        {topic: int(some[_SIZE].value) for topic, some in found.items() if _SIZE in some},
        tolerate(cluster.quotas, trouble, AuthorizationError) if configs else None,
    )
