"""Who leads a partition, and who follows, as a broker tells it."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, PartitionMetadata

from srm_lab.stack.kafka import KafkaBroker


def partition(broker: KafkaBroker, topic: str) -> PartitionMetadata:
    """Return what the cluster says of partition 0; nothing while a broker has not heard of it."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    found = client.list_topics(topic, timeout=60).topics[topic].partitions
    return found.get(0, PartitionMetadata())
