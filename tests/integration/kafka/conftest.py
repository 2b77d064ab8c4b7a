"""Real brokers through srm's adapters."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from srm.config.model import ClusterClients
from srm.engine.cluster_ports import TopicSpec
from srm.kafka.cluster import KafkaCluster


@pytest.fixture
def props(clusters) -> dict[str, str]:
    """Return the client properties of cluster P."""
    return {"bootstrap.servers": clusters["P"].bootstrap}


@pytest.fixture
def cluster(props) -> Iterator[KafkaCluster]:
    """Open cluster P."""
    with KafkaCluster("P", ClusterClients.alike(props)) as opened:
        yield opened


@pytest.fixture
def unique() -> str:
    """Make a name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic(cluster, unique) -> str:
    """Create a topic with two partitions."""
    cluster.create_topics([TopicSpec(unique, 2, 1, {})])
    return unique
