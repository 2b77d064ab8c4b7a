"""Requests about topics and their logs that aiokafka does not have: Kafka 2.8 and later.

KIP-320 (where a leader epoch ends) and KIP-516 (topic ids).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
)

from srm.domain.names.topics import TopicPartition
from srm.kafka.wire.messages import TEXT, Structure, Uuid, array, message

_STRING: Final = String("utf-8")
_NUMBERS: Final = CompactArray(Int32)
_CONSUMER: Final = -1
_ANY_EPOCH: Final = -1
_NO_ID: Final = bytes(16)

_EPOCHS: Final = Array(
    ("partition", Int32), ("current_leader_epoch", Int32), ("leader_epoch", Int32)
)
_ENDS: Final = Array(
    ("error_code", Int16), ("partition", Int32), ("leader_epoch", Int32), ("end_offset", Int64)
)
_EPOCH_ENDS: Final = message(
    23,
    3,
    Schema(("replica_id", Int32), ("topics", Array(("topic", _STRING), ("partitions", _EPOCHS)))),
    Schema(
        ("throttle_time_ms", Int32), ("topics", Array(("topic", _STRING), ("partitions", _ENDS)))
    ),
    flexible=False,
)

_BROKERS: Final = array(("node", Int32), ("host", TEXT), ("port", Int32), ("rack", TEXT))
_PARTITIONS: Final = array(
    *(("error_code", Int16), ("partition", Int32), ("leader", Int32), ("leader_epoch", Int32)),
    *(("replicas", _NUMBERS), ("isr", _NUMBERS), ("offline", _NUMBERS)),
)
_TOPICS: Final = array(
    *(("error_code", Int16), ("topic", TEXT), ("topic_id", Uuid), ("is_internal", Boolean)),
    *(("partitions", _PARTITIONS), ("topic_operations", Int32)),
)
_METADATA: Final = message(
    3,
    10,
    Structure(
        ("topics", array(("topic_id", Uuid), ("topic", TEXT))),
        ("allow_auto_topic_creation", Boolean),
        ("cluster_operations", Boolean),
        ("topic_operations", Boolean),
    ),
    Structure(
        *(("throttle_time_ms", Int32), ("brokers", _BROKERS), ("cluster_id", TEXT)),
        *(("controller", Int32), ("topics", _TOPICS), ("cluster_operations", Int32)),
    ),
)


def epoch_ends_request(epochs: Mapping[TopicPartition, int]) -> Any:
    """Make a request for the ends of leader epochs in the leader's logs, by partition."""
    topics: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for partition, epoch in epochs.items():
        topics[partition.topic].append((partition.partition, _ANY_EPOCH, epoch))
    return _EPOCH_ENDS(_CONSUMER, list(topics.items()))


def topic_id_request(topic: str) -> Any:
    """Make a request for one topic by name, which does not create it."""
    return _METADATA([(_NO_ID, topic)], False, False, False)  # noqa: FBT003 - fields of the message


def topic_id_of(response: Any) -> tuple[int, bytes]:
    """Return error code and topic id."""
    [(error, _, topic_id, *_)] = response.topics
    return int(error), bytes(topic_id)
