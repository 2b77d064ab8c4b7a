"""Reader of a topic."""

from __future__ import annotations

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition


def values(servers: str, topic: str) -> dict[str, int]:
    """Return all values of a topic with their timestamps in milliseconds."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "all", "log_level": 0})
    place = KafkaTopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=120)
    consumer.assign([place])
    found: dict[str, int] = {}
    last = -1
    while last < end - 1:
        message = consumer.poll(60)
        if message is None:
            raise RuntimeError(f"{topic} on {servers} is not read to its end")
        if message.error() is None:
            last = message.offset()
            found[message.value().decode()] = message.timestamp()[1]
    consumer.close()
    return found
