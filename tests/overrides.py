"""Settings of topics themselves, without the defaults of brokers."""

from __future__ import annotations

from collections.abc import Collection

from srm.engine.cluster_ports import Cluster


def overrides(cluster: Cluster, topics: Collection[str]) -> dict[str, dict[str, str]]:
    return {
        topic: {name: one.value for name, one in found.items() if one.origin == "topic"}
        for topic, found in cluster.topic_settings(topics).items()
    }
