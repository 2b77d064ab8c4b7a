"""Requests about groups of all kinds.

KIP-699 (coordinators in batches), KIP-709 (offsets in batches), KIP-518 and KIP-848 (listing by
state and type), KIP-345 (static members), KIP-848, 1071, 932 (kinds), KIP-1226 (share lag).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
    FieldType,
    Message,
    Nullable,
    Structure,
    array,
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
_TOPICS: Final = array(topic_id=UUID, topic=TEXT, partitions=NUMBERS)
_ASSIGNMENT: Final = Structure(topics=_TOPICS)
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
