"""Requests apart from the hot path, as declarations: logs, transactions and groups of all kinds.

KIP-79 (offsets by time), KIP-320 (epochs), KIP-516 (topic ids), KIP-98 and 664 (transactions),
KIP-699 (coordinators in batches), KIP-709 (offsets in batches), KIP-518 and KIP-848 (listing by
state and type), KIP-345 (static members), KIP-848, 1071, 932 (kinds), KIP-1226 (share lag).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from srm.domain.names.topics import TopicPartition
from srm.kafka.wire.messages import (
    BOOLEAN,
    BYTES,
    CLASSIC,
    INT8,
    INT16,
    INT32,
    INT64,
    NAMES,
    NUMBERS,
    TEXT,
    UUID,
    Array,
    FieldType,
    Message,
    Nullable,
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
_TOPIC_METADATA: Final = array(
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
        topics=_TOPIC_METADATA,
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


_TOPIC_PARTITIONS: Final = array(topic=TEXT, partitions=NUMBERS)

DESCRIBE_PRODUCERS: Final = Message(
    61,
    0,
    Structure(topics=_TOPIC_PARTITIONS),
    Structure(
        throttle_time_ms=INT32,
        topics=array(
            topic=TEXT,
            partitions=array(
                partition=INT32,
                error_code=INT16,
                error_message=TEXT,
                producers=array(
                    producer_id=INT64,
                    producer_epoch=INT32,
                    last_sequence=INT32,
                    last_timestamp_ms=INT64,
                    coordinator_epoch=INT32,
                    first_offset=INT64,
                ),
            ),
        ),
    ),
)
"""``first_offset`` is that of the producer's open transaction in the partition, -1 for none."""

LIST_TRANSACTIONS: Final = Message(
    66,
    0,
    Structure(states=NAMES, producer_ids=Array(INT64)),
    Structure(
        throttle_time_ms=INT32,
        error_code=INT16,
        unknown_states=NAMES,
        transactions=array(transactional_id=TEXT, producer_id=INT64, state=TEXT),
    ),
)

DESCRIBE_TRANSACTIONS: Final = Message(
    65,
    0,
    Structure(transactional_ids=NAMES),
    Structure(
        throttle_time_ms=INT32,
        transactions=array(
            error_code=INT16,
            transactional_id=TEXT,
            state=TEXT,
            timeout_ms=INT32,
            start_ms=INT64,
            producer_id=INT64,
            producer_epoch=INT16,
            topics=_TOPIC_PARTITIONS,
        ),
    ),
)

INIT_PRODUCER_ID: Final = Message(
    22,
    0,
    Structure(transactional_id=TEXT, transaction_timeout_ms=INT32),
    Structure(throttle_time_ms=INT32, error_code=INT16, producer_id=INT64, producer_epoch=INT16),
    CLASSIC,
)

_PRODUCER: Final[Mapping[str, FieldType]] = {
    "transactional_id": TEXT,
    "producer_id": INT64,
    "producer_epoch": INT16,
}

ADD_PARTITIONS: Final = Message(
    24,
    0,
    Structure(**_PRODUCER, topics=_TOPIC_PARTITIONS),
    Structure(
        throttle_time_ms=INT32,
        topics=array(topic=TEXT, partitions=array(partition=INT32, error_code=INT16)),
    ),
    CLASSIC,
)

END_TRANSACTION: Final = Message(
    26,
    0,
    Structure(**_PRODUCER, committed=BOOLEAN),
    Structure(throttle_time_ms=INT32, error_code=INT16),
    CLASSIC,
)


_DESCRIBE: Final = Structure(groups=NAMES, authorized_operations=BOOLEAN)
_LISTED: Final[Mapping[str, FieldType]] = {"group": TEXT, "protocol_type": TEXT, "state": TEXT}
_LIST_HEAD: Final[Mapping[str, FieldType]] = {"throttle_time_ms": INT32, "error_code": INT16}
_GROUP: Final[Mapping[str, FieldType]] = {
    "error_code": INT16,
    "error_message": TEXT,
    "group": TEXT,
    "state": TEXT,
    "group_epoch": INT32,
    "assignment_epoch": INT32,
}
_TOPIC_IDS: Final = array(topic_id=UUID, topic=TEXT, partitions=NUMBERS)
_ASSIGNMENT: Final = Structure(topics=_TOPIC_IDS)
_TASKS: Final = array(subtopology=TEXT, partitions=NUMBERS)
_TASK_ASSIGNMENT: Final = Structure(active=_TASKS, standby=_TASKS, warmup=_TASKS)
_TASK_OFFSETS: Final = array(subtopology=TEXT, partition=INT32, offset=INT64)
_PAIRS: Final = array(key=TEXT, value=TEXT)
_INTERNAL_TOPICS: Final = array(
    topic=TEXT, partitions=INT32, replication_factor=INT16, configs=_PAIRS
)
_TOPOLOGY: Final = Nullable(
    epoch=INT32,
    subtopologies=array(
        subtopology=TEXT,
        source_topics=NAMES,
        repartition_sinks=NAMES,
        changelogs=_INTERNAL_TOPICS,
        repartition_sources=_INTERNAL_TOPICS,
    ),
)

FIND_COORDINATORS: Final = Message(
    10,
    4,
    Structure(key_type=INT8, keys=NAMES),
    Structure(
        throttle_time_ms=INT32,
        coordinators=array(
            key=TEXT, node=INT32, host=TEXT, port=INT32, error_code=INT16, error_message=TEXT
        ),
    ),
)
"""Kafka 3.0 and later."""

LIST_GROUPS: Final = Message(
    16, 4, Structure(states=NAMES), Structure(**_LIST_HEAD, groups=array(**_LISTED))
)

LIST_GROUPS_BY_TYPE: Final = Message(
    16,
    5,
    Structure(states=NAMES, types=NAMES),
    Structure(**_LIST_HEAD, groups=array(**_LISTED, type=TEXT)),
)
"""Of brokers that have groups of other than the classic type."""

DESCRIBE_CLASSIC: Final = Message(
    15,
    4,
    _DESCRIBE,
    Structure(
        throttle_time_ms=INT32,
        groups=array(
            error_code=INT16,
            group=TEXT,
            state=TEXT,
            protocol_type=TEXT,
            protocol=TEXT,
            members=array(
                member=TEXT,
                instance_id=TEXT,
                client_id=TEXT,
                host=TEXT,
                metadata=BYTES,
                assignment=BYTES,
            ),
            authorized_operations=INT32,
        ),
    ),
    CLASSIC,
)

DESCRIBE_CONSUMER: Final = Message(
    69,
    0,
    _DESCRIBE,
    Structure(
        throttle_time_ms=INT32,
        groups=array(
            **_GROUP,
            assignor=TEXT,
            members=array(
                member=TEXT,
                instance_id=TEXT,
                rack=TEXT,
                epoch=INT32,
                client_id=TEXT,
                host=TEXT,
                topics=NAMES,
                pattern=TEXT,
                assignment=_ASSIGNMENT,
                target=_ASSIGNMENT,
            ),
            authorized_operations=INT32,
        ),
    ),
)

DESCRIBE_STREAMS: Final = Message(
    89,
    0,
    _DESCRIBE,
    Structure(
        throttle_time_ms=INT32,
        groups=array(
            **_GROUP,
            topology=_TOPOLOGY,
            members=array(
                member=TEXT,
                epoch=INT32,
                instance_id=TEXT,
                rack=TEXT,
                client_id=TEXT,
                host=TEXT,
                topology_epoch=INT32,
                process=TEXT,
                endpoint=Nullable(host=TEXT, port=INT16),
                client_tags=_PAIRS,
                task_offsets=_TASK_OFFSETS,
                task_ends=_TASK_OFFSETS,
                assignment=_TASK_ASSIGNMENT,
                target=_TASK_ASSIGNMENT,
                classic=BOOLEAN,
            ),
            authorized_operations=INT32,
        ),
    ),
)

DESCRIBE_SHARE: Final = Message(
    77,
    1,
    _DESCRIBE,
    Structure(
        throttle_time_ms=INT32,
        groups=array(
            **_GROUP,
            assignor=TEXT,
            members=array(
                member=TEXT,
                rack=TEXT,
                epoch=INT32,
                client_id=TEXT,
                host=TEXT,
                topics=NAMES,
                assignment=_ASSIGNMENT,
            ),
            authorized_operations=INT32,
        ),
    ),
)

FETCH_OFFSETS: Final = Message(
    9,
    8,
    Structure(
        groups=array(group=TEXT, topics=array(topic=TEXT, partitions=NUMBERS)),
        require_stable=BOOLEAN,
    ),
    Structure(
        throttle_time_ms=INT32,
        groups=array(
            group=TEXT,
            topics=array(
                topic=TEXT,
                partitions=array(
                    partition=INT32,
                    offset=INT64,
                    leader_epoch=INT32,
                    metadata=TEXT,
                    error_code=INT16,
                ),
            ),
            error_code=INT16,
        ),
    ),
)
"""Of all partitions where ``topics`` is None."""

COMMIT_OFFSETS: Final = Message(
    8,
    8,
    Structure(
        group=TEXT,
        generation=INT32,
        member=TEXT,
        instance_id=TEXT,
        topics=array(
            topic=TEXT,
            partitions=array(partition=INT32, offset=INT64, leader_epoch=INT32, metadata=TEXT),
        ),
    ),
    Structure(
        throttle_time_ms=INT32,
        topics=array(topic=TEXT, partitions=array(partition=INT32, error_code=INT16)),
    ),
)
"""Of a group without members where the generation is -1."""

FETCH_SHARE_STARTS: Final = Message(
    90,
    1,
    Structure(groups=array(group=TEXT, topics=array(topic=TEXT, partitions=NUMBERS))),
    Structure(
        throttle_time_ms=INT32,
        groups=array(
            group=TEXT,
            topics=array(
                topic=TEXT,
                topic_id=UUID,
                partitions=array(
                    partition=INT32,
                    offset=INT64,
                    leader_epoch=INT32,
                    lag=INT64,
                    error_code=INT16,
                    error_message=TEXT,
                ),
            ),
            error_code=INT16,
            error_message=TEXT,
        ),
    ),
)
"""Of all partitions where ``topics`` is None; Kafka 4.2 and later."""

SET_SHARE_STARTS: Final = Message(
    91,
    0,
    Structure(
        group=TEXT, topics=array(topic=TEXT, partitions=array(partition=INT32, offset=INT64))
    ),
    Structure(
        throttle_time_ms=INT32,
        error_code=INT16,
        error_message=TEXT,
        topics=array(
            topic=TEXT,
            topic_id=UUID,
            partitions=array(partition=INT32, error_code=INT16, error_message=TEXT),
        ),
    ),
)
"""Of a group without members; an absent one is created."""

DESCRIBE_SETTINGS: Final = Message(
    32,
    4,
    Structure(
        resources=array(type=INT8, name=TEXT, settings=NAMES),
        with_synonyms=BOOLEAN,
        with_docs=BOOLEAN,
    ),
    Structure(
        throttle_time_ms=INT32,
        resources=array(
            error_code=INT16,
            error_message=TEXT,
            type=INT8,
            name=TEXT,
            settings=array(
                name=TEXT,
                value=TEXT,
                read_only=BOOLEAN,
                source=INT8,
                sensitive=BOOLEAN,
                synonyms=array(name=TEXT, value=TEXT, source=INT8),
                type=INT8,
                docs=TEXT,
            ),
        ),
    ),
)
"""librdkafka has no settings of groups."""

LEAVE_GROUP: Final = Message(
    13,
    5,
    Structure(group=TEXT, members=array(member=TEXT, instance_id=TEXT, reason=TEXT)),
    Structure(
        throttle_time_ms=INT32,
        error_code=INT16,
        members=array(member=TEXT, instance_id=TEXT, error_code=INT16),
    ),
)
