"""Requests about topics and logs: KIP-79 (by time), KIP-320 (epochs), KIP-516 (topic ids)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from srm.domain.names.topics import TopicPartition
from srm.kafka.wire.messages import (
    BOOLEAN,
    CLASSIC,
    INT8,
    INT16,
    INT32,
    INT64,
    NUMBERS,
    TEXT,
    UUID,
    Message,
    Request,
    Structure,
    array,
)

_CONSUMER: Final = -1
_READ_UNCOMMITTED: Final = 0
_NO_ID: Final = bytes(16)

_TIMES: Final = array(partition=INT32, current_leader_epoch=INT32, timestamp=INT64)
_OFFSETS: Final = array(
    partition=INT32, error_code=INT16, timestamp=INT64, offset=INT64, leader_epoch=INT32
)
LIST_OFFSETS: Final = Message(
    2,
    5,
    Structure(replica_id=INT32, isolation_level=INT8, topics=array(topic=TEXT, partitions=_TIMES)),
    Structure(throttle_time_ms=INT32, topics=array(topic=TEXT, partitions=_OFFSETS)),
    CLASSIC,
)

_EPOCHS: Final = array(partition=INT32, current_leader_epoch=INT32, leader_epoch=INT32)
_ENDS: Final = array(error_code=INT16, partition=INT32, leader_epoch=INT32, end_offset=INT64)
EPOCH_ENDS: Final = Message(
    23,
    3,
    Structure(replica_id=INT32, topics=array(topic=TEXT, partitions=_EPOCHS)),
    Structure(throttle_time_ms=INT32, topics=array(topic=TEXT, partitions=_ENDS)),
    CLASSIC,
)

_BROKERS: Final = array(node=INT32, host=TEXT, port=INT32, rack=TEXT)
_PARTITIONS: Final = array(
    error_code=INT16,
    partition=INT32,
    leader=INT32,
    leader_epoch=INT32,
    replicas=NUMBERS,
    isr=NUMBERS,
    offline=NUMBERS,
)
_TOPICS: Final = array(
    error_code=INT16,
    topic=TEXT,
    topic_id=UUID,
    is_internal=BOOLEAN,
    partitions=_PARTITIONS,
    topic_operations=INT32,
)
METADATA: Final = Message(
    3,
    10,
    Structure(
        topics=array(topic_id=UUID, topic=TEXT),
        allow_auto_topic_creation=BOOLEAN,
        cluster_operations=BOOLEAN,
        topic_operations=BOOLEAN,
    ),
    Structure(
        throttle_time_ms=INT32,
        brokers=_BROKERS,
        cluster_id=TEXT,
        controller=INT32,
        topics=_TOPICS,
        cluster_operations=INT32,
    ),
)


def metadata_request(topics: Collection[str]) -> Request:
    """Make a request for the brokers and for topics by name, which does not create them."""
    create = cluster_operations = topic_operations = False
    wanted = [(_NO_ID, topic) for topic in topics]
    return METADATA(wanted, create, cluster_operations, topic_operations)


class LogQuery(NamedTuple):
    """A query about one log, in ``leader_epoch`` only (KIP-320); ``value``: the time or epoch."""

    partition: TopicPartition
    leader_epoch: int
    value: int


def offsets_request(queries: Iterable[LogQuery]) -> Request:
    """Make a request for the first offsets at or after a time, or at an end of the log."""
    return LIST_OFFSETS(_CONSUMER, _READ_UNCOMMITTED, _by_topic(queries))


def epoch_ends_request(queries: Iterable[LogQuery]) -> Request:
    """Make a request for the ends of leader epochs in the leader's logs."""
    return EPOCH_ENDS(_CONSUMER, _by_topic(queries))


def _by_topic(queries: Iterable[LogQuery]) -> list[tuple[str, list[tuple[int, int, int]]]]:
    topics: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for (topic, number), leader_epoch, value in queries:
        topics[topic].append((number, leader_epoch, value))
    return list(topics.items())


def by_partition(answer: Mapping[str, Any]) -> dict[TopicPartition, Mapping[str, Any]]:
    """Return what a broker answered of each partition."""
    return {
        TopicPartition(topic["topic"], found["partition"]): found
        for topic in answer["topics"]
        for found in topic["partitions"]
    }
