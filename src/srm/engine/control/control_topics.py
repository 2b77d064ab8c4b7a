"""Creation of the topics of moves, routes and the ledger, which every cluster has."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from srm.domain.names import internal_topics
from srm.engine.cluster_ports import Cluster
from srm.engine.control.compacted import STAMPED, compacted_spec
from srm.errors import AuthorizationError

log = logging.getLogger(__name__)

_NAMES: Final = (internal_topics.MOVES, internal_topics.ROUTING, internal_topics.LEDGER)


def create_control_topics(cluster: Cluster, replication_factor: int) -> tuple[str, ...]:
    """Create the missing control topics of a cluster; return their names."""
    existing = cluster.topics()
    specs = [
        # One clock, the broker's, orders the records of clients and moves.
        replace(spec, configs={**spec.configs, **STAMPED})
        for spec in (compacted_spec(name, replication_factor) for name in _NAMES)
        if spec.name not in existing
    ]
    if specs:
        cluster.create_topics(specs)
    return tuple(spec.name for spec in specs)


def repair_control_topics(cluster: Cluster) -> None:
    """Set the configs that moves rely on, on control topics that others have created."""
    found = cluster.topic_configs(list(_NAMES))
    changes = {
        topic: {key: value for key, value in STAMPED.items() if configs.get(key) != value}
        for topic, configs in found.items()
    }
    for topic, some in changes.items():
        if some:
            try:
                cluster.alter_topic_configs({topic: dict(some)})
            except AuthorizationError as error:
                log.warning("topic %s keeps its settings: %s", topic, error)
