"""Requests about groups of all kinds.

KIP-699 (coordinators in batches), KIP-709 (offsets in batches), KIP-518 and KIP-848 (listing by
state and type), KIP-345 (static members), KIP-848, KIP-1071 and KIP-932 (kinds of groups).
"""

from __future__ import annotations

from typing import Final

from aiokafka.protocol.types import (
    Array,
    Boolean,
    Bytes,
    CompactArray,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
)

from srm.kafka.wire.messages import TEXT, Nullable, Structure, Uuid, array, message

_STRING: Final = String("utf-8")
_NAMES: Final = CompactArray(TEXT)
_NUMBERS: Final = CompactArray(Int32)
_DESCRIBE: Final = Structure(("groups", _NAMES), ("authorized_operations", Boolean))
_LISTED: Final = (("group", TEXT), ("protocol_type", TEXT), ("state", TEXT))
_LIST_HEAD: Final = (("throttle_time_ms", Int32), ("error_code", Int16))
_GROUP: Final = (
    ("error_code", Int16),
    ("error_message", TEXT),
    ("group", TEXT),
    ("state", TEXT),
    ("group_epoch", Int32),
    ("assignment_epoch", Int32),
)
_TOPICS: Final = array(("topic_id", Uuid), ("topic", TEXT), ("partitions", _NUMBERS))
_ASSIGNMENT: Final = Structure(("topics", _TOPICS))
_TASKS: Final = array(("subtopology", TEXT), ("partitions", _NUMBERS))
_TASK_ASSIGNMENT: Final = Structure(("active", _TASKS), ("standby", _TASKS), ("warmup", _TASKS))
_TASK_OFFSETS: Final = array(("subtopology", TEXT), ("partition", Int32), ("offset", Int64))
_PAIRS: Final = array(("key", TEXT), ("value", TEXT))
_INTERNAL_TOPICS: Final = array(
    ("topic", TEXT), ("partitions", Int32), ("replication_factor", Int16), ("configs", _PAIRS)
)
_TOPOLOGY: Final = Nullable(
    ("epoch", Int32),
    (
        "subtopologies",
        array(
            ("subtopology", TEXT),
            ("source_topics", _NAMES),
            ("repartition_sinks", _NAMES),
            ("changelogs", _INTERNAL_TOPICS),
            ("repartition_sources", _INTERNAL_TOPICS),
        ),
    ),
)

FIND_COORDINATORS: Final = message(
    10,
    4,
    Structure(("key_type", Int8), ("keys", _NAMES)),
    Structure(
        ("throttle_time_ms", Int32),
        (
            "coordinators",
            array(
                ("key", TEXT),
                ("node", Int32),
                ("host", TEXT),
                ("port", Int32),
                ("error_code", Int16),
                ("error_message", TEXT),
            ),
        ),
    ),
)
"""Kafka 3.0 and later."""

LIST_GROUPS: Final = message(
    16, 4, Structure(("states", _NAMES)), Structure(*_LIST_HEAD, ("groups", array(*_LISTED)))
)

LIST_GROUPS_BY_TYPE: Final = message(
    16,
    5,
    Structure(("states", _NAMES), ("types", _NAMES)),
    Structure(*_LIST_HEAD, ("groups", array(*_LISTED, ("type", TEXT)))),
)
"""Of brokers that have groups of other than the classic type."""

DESCRIBE_CLASSIC: Final = message(
    15,
    4,
    Schema(("groups", Array(_STRING)), ("authorized_operations", Boolean)),
    Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            Array(
                ("error_code", Int16),
                ("group", _STRING),
                ("state", _STRING),
                ("protocol_type", _STRING),
                ("protocol", _STRING),
                (
                    "members",
                    Array(
                        ("member", _STRING),
                        ("instance_id", _STRING),
                        ("client_id", _STRING),
                        ("host", _STRING),
                        ("metadata", Bytes),
                        ("assignment", Bytes),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
    ),
    flexible=False,
)

DESCRIBE_CONSUMER: Final = message(
    69,
    0,
    _DESCRIBE,
    Structure(
        ("throttle_time_ms", Int32),
        (
            "groups",
            array(
                *_GROUP,
                ("assignor", TEXT),
                (
                    "members",
                    array(
                        ("member", TEXT),
                        ("instance_id", TEXT),
                        ("rack", TEXT),
                        ("epoch", Int32),
                        ("client_id", TEXT),
                        ("host", TEXT),
                        ("topics", _NAMES),
                        ("pattern", TEXT),
                        ("assignment", _ASSIGNMENT),
                        ("target", _ASSIGNMENT),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
    ),
)

DESCRIBE_STREAMS: Final = message(
    89,
    0,
    _DESCRIBE,
    Structure(
        ("throttle_time_ms", Int32),
        (
            "groups",
            array(
                *_GROUP,
                ("topology", _TOPOLOGY),
                (
                    "members",
                    array(
                        ("member", TEXT),
                        ("epoch", Int32),
                        ("instance_id", TEXT),
                        ("rack", TEXT),
                        ("client_id", TEXT),
                        ("host", TEXT),
                        ("topology_epoch", Int32),
                        ("process", TEXT),
                        ("endpoint", Nullable(("host", TEXT), ("port", Int16))),
                        ("client_tags", _PAIRS),
                        ("task_offsets", _TASK_OFFSETS),
                        ("task_ends", _TASK_OFFSETS),
                        ("assignment", _TASK_ASSIGNMENT),
                        ("target", _TASK_ASSIGNMENT),
                        ("classic", Boolean),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
    ),
)

DESCRIBE_SHARE: Final = message(
    77,
    1,
    _DESCRIBE,
    Structure(
        ("throttle_time_ms", Int32),
        (
            "groups",
            array(
                *_GROUP,
                ("assignor", TEXT),
                (
                    "members",
                    array(
                        ("member", TEXT),
                        ("rack", TEXT),
                        ("epoch", Int32),
                        ("client_id", TEXT),
                        ("host", TEXT),
                        ("topics", _NAMES),
                        ("assignment", _ASSIGNMENT),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
    ),
)

FETCH_OFFSETS: Final = message(
    9,
    8,
    Structure(
        (
            "groups",
            array(("group", TEXT), ("topics", array(("topic", TEXT), ("partitions", _NUMBERS)))),
        ),
        ("require_stable", Boolean),
    ),
    Structure(
        ("throttle_time_ms", Int32),
        (
            "groups",
            array(
                ("group", TEXT),
                (
                    "topics",
                    array(
                        ("topic", TEXT),
                        (
                            "partitions",
                            array(
                                ("partition", Int32),
                                ("offset", Int64),
                                ("leader_epoch", Int32),
                                ("metadata", TEXT),
                                ("error_code", Int16),
                            ),
                        ),
                    ),
                ),
                ("error_code", Int16),
            ),
        ),
    ),
)
"""Of all partitions where ``topics`` is None."""

COMMIT_OFFSETS: Final = message(
    8,
    8,
    Structure(
        ("group", TEXT),
        ("generation", Int32),
        ("member", TEXT),
        ("instance_id", TEXT),
        (
            "topics",
            array(
                ("topic", TEXT),
                (
                    "partitions",
                    array(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", TEXT),
                    ),
                ),
            ),
        ),
    ),
    Structure(
        ("throttle_time_ms", Int32),
        (
            "topics",
            array(
                ("topic", TEXT),
                ("partitions", array(("partition", Int32), ("error_code", Int16))),
            ),
        ),
    ),
)
"""Of a group without members where the generation is -1."""

LEAVE_GROUP: Final = message(
    13,
    5,
    Structure(
        ("group", TEXT),
        ("members", array(("member", TEXT), ("instance_id", TEXT), ("reason", TEXT))),
    ),
    Structure(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("members", array(("member", TEXT), ("instance_id", TEXT), ("error_code", Int16))),
    ),
)
