"""Requests apart from the hot path: connections, clusters, logs, transactions and groups.

KIP-79 (offsets by time), KIP-320 (epochs), KIP-516 (topic ids), KIP-98 and 664 (transactions),
KIP-699 (coordinators in batches), KIP-709 (offsets in batches), KIP-518 and KIP-848 (listing by
state and type), KIP-345 (static members), KIP-848, 1071, 932 (kinds), KIP-1226 (share lag).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from srm.domain.names.topics import TopicPartition
from srm.kafka.wire.messages import Request, message

_CONSUMER: Final = -1
_PARTITIONS: Final = "topics[topic:text partitions:int32[]]"
_ByTopic = list[tuple[str, list[Any]]]
_HEAD: Final = "throttle_time_ms:int32 error_code:int16"
_PARTITION_CODES: Final = "topics[topic:text partitions[partition:int32 error_code:int16]]"

Answer = Mapping[str, Any]
"""An answer of a broker, or a part of one, by the names of its fields."""

# ----- connections and clusters

API_VERSIONS: Final = message("""18 0 classic:
    -> error_code:int16 versions[api_key:int16 lowest:int16 highest:int16]""")
SASL_HANDSHAKE: Final = message("""17 1 classic:
    mechanism:text -> error_code:int16 mechanisms:text[]""")
SASL_AUTHENTICATE: Final = message("""36 1 classic:
    payload:bytes
    -> error_code:int16 error_message:text payload:bytes session_lifetime_ms:int64""")
METADATA: Final = message("""3 10:
    topics[topic_id:uuid topic:text]
    allow_auto_topic_creation:bool cluster_operations:bool topic_operations:bool
    -> throttle_time_ms:int32 brokers[node:int32 host:text port:int32 rack:text]
    cluster_id:text controller:int32 topics[error_code:int16 topic:text topic_id:uuid
    is_internal:bool partitions[error_code:int16 partition:int32 leader:int32 leader_epoch:int32
    replicas:int32[] isr:int32[] offline:int32[]] topic_operations:int32]
    cluster_operations:int32""")
_REPLICA: Final = """replica_id:int32 log_end_offset:int64
    last_fetch_ms:int64 last_caught_up_ms:int64"""
DESCRIBE_QUORUM: Final = message(f"""55 1:
    topics[topic:text partitions[partition:int32]]
    -> error_code:int16 topics[topic:text partitions[partition:int32 error_code:int16
    leader_id:int32 leader_epoch:int32 high_watermark:int64 voters[{_REPLICA}]
    observers[{_REPLICA}]]]""")
"""KIP-836: the active controller is caught up now, by its own clock."""

# confluent-kafka has no call for quotas.
DESCRIBE_CLIENT_QUOTAS: Final = message(f"""48 0 classic:
    components[entity_type:text match_type:int8 match:text] strict:bool
    -> {_HEAD} error_message:text entries[entity[entity_type:text entity_name:text]
    values[key:text value:float64]]""")
# Without the right librdkafka aborts, and for `users` None a broker never answers.
DESCRIBE_SCRAM_USERS: Final = message(f"""50 0:
    users[user:text] -> {_HEAD} error_message:text users[user:text error_code:int16
    error_message:text credentials[mechanism:int8 iterations:int32]]""")
# Without the right or an authorizer librdkafka returns an empty list instead of an error.
DESCRIBE_ACLS: Final = message(f"""29 1 classic:
    resource_type:int8 resource_name:text pattern_type:int8 principal:text host:text
    operation:int8 permission_type:int8
    -> {_HEAD} error_message:text resources[resource_type:int8 resource_name:text
    pattern_type:int8 acls[principal:text host:text operation:int8 permission_type:int8]]""")

# ----- logs

_LIST_OFFSETS: Final = """
    replica_id:int32 isolation_level:int8 topics[topic:text partitions[partition:int32
    current_leader_epoch:int32 timestamp:int64]]
    -> throttle_time_ms:int32 topics[topic:text partitions[partition:int32 error_code:int16
    timestamp:int64 offset:int64 leader_epoch:int32]]"""
LIST_OFFSETS: Final = message(f"2 7:{_LIST_OFFSETS}")
LIST_LOCAL_OFFSETS: Final = message(f"2 8:{_LIST_OFFSETS}")
"""For :data:`EARLIEST_LOCAL` (KIP-405): brokers before 3.5 do not know this version."""
EARLIEST: Final = -2
EARLIEST_LOCAL: Final = -4
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3
"""KIP-734."""

EPOCH_ENDS: Final = message("""23 3 classic:
    replica_id:int32 topics[topic:text partitions[partition:int32 current_leader_epoch:int32
    leader_epoch:int32]]
    -> throttle_time_ms:int32 topics[topic:text partitions[error_code:int16 partition:int32
    leader_epoch:int32 end_offset:int64]]""")


def metadata_request(topics: Collection[str] | None, *, rights: bool = False) -> Request:
    """Make a request for the brokers and for topics by name, None: all; it does not create them."""
    wanted = None if topics is None else [(bytes(16), topic) for topic in sorted(topics)]
    create = False
    return METADATA(wanted, create, rights, rights)


class LogQuery(NamedTuple):
    """A query about one log, in ``leader_epoch`` only (KIP-320); ``value``: the time or epoch."""

    partition: TopicPartition
    leader_epoch: int
    value: int


LogMaker = Callable[[Iterable[LogQuery]], Request]
"""Makes one request of queries to one leader."""


def offsets_request(queries: Iterable[LogQuery], *, committed: bool = False) -> Request:
    """Make a request for the first offsets at or after a time, or at an end of the log.

    ``committed``: the end is the last stable offset.
    """
    return LIST_OFFSETS(_CONSUMER, int(committed), _queries_by_topic(queries))


def local_offsets_request(queries: Iterable[LogQuery]) -> Request:
    return LIST_LOCAL_OFFSETS(_CONSUMER, 0, _queries_by_topic(queries))


def epoch_ends_request(queries: Iterable[LogQuery]) -> Request:
    return EPOCH_ENDS(_CONSUMER, _queries_by_topic(queries))


def _queries_by_topic(queries: Iterable[LogQuery]) -> _ByTopic:
    return by_topic((partition, (epoch, value)) for partition, epoch, value in queries)


def by_topic(fields_of: Iterable[tuple[TopicPartition, tuple[object, ...]]]) -> _ByTopic:
    topics: dict[str, list[Any]] = defaultdict(list)
    for (topic, number), fields in fields_of:
        topics[topic].append((number, *fields))
    return list(topics.items())


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> _ByTopic:
    return [
        (topic, [at.partition for at in group])
        for topic, group in groupby(sorted(set(partitions)), attrgetter("topic"))
    ]


def by_partition(answer: Answer) -> dict[TopicPartition, Answer]:
    return {
        TopicPartition(topic["topic"], found["partition"]): found
        for topic in answer["topics"]
        for found in topic["partitions"]
    }


# ----- transactions

DESCRIBE_PRODUCERS: Final = message(f"""61 0:
    {_PARTITIONS}
    -> throttle_time_ms:int32 topics[topic:text partitions[partition:int32 error_code:int16
    error_message:text producers[producer_id:int64 producer_epoch:int32 last_sequence:int32
    last_timestamp_ms:int64 coordinator_epoch:int32 first_offset:int64]]]""")
"""``first_offset`` is that of the producer's open transaction in the partition, -1 for none."""

LIST_TRANSACTIONS: Final = message(f"""66 0:
    states:text[] producer_ids:int64[]
    -> {_HEAD} unknown_states:text[] transactions[transactional_id:text producer_id:int64
    state:text]""")
DESCRIBE_TRANSACTIONS: Final = message(f"""65 0:
    transactional_ids:text[]
    -> throttle_time_ms:int32 transactions[error_code:int16 transactional_id:text state:text
    timeout_ms:int32 start_ms:int64 producer_id:int64 producer_epoch:int16 {_PARTITIONS}]""")
INIT_PRODUCER_ID: Final = message(f"""22 0 classic:
    transactional_id:text transaction_timeout_ms:int32
    -> {_HEAD} producer_id:int64 producer_epoch:int16""")
_PRODUCER: Final = "transactional_id:text producer_id:int64 producer_epoch:int16"
ADD_PARTITIONS: Final = message(f"""24 0 classic:
    {_PRODUCER} {_PARTITIONS} -> throttle_time_ms:int32 {_PARTITION_CODES}""")
END_TRANSACTION: Final = message(f"""26 0 classic:
    {_PRODUCER} committed:bool -> {_HEAD}""")

# ----- groups

FIND_COORDINATORS: Final = message("""10 4:
    key_type:int8 keys:text[]
    -> throttle_time_ms:int32 coordinators[key:text node:int32 host:text port:int32
    error_code:int16 error_message:text]""")
"""Kafka 3.0 and later."""

_LISTED: Final = "group:text protocol_type:text state:text"
LIST_GROUPS: Final = message(f"""16 4:
    states:text[] -> {_HEAD} groups[{_LISTED}]""")
LIST_GROUPS_BY_TYPE: Final = message(f"""16 5:
    states:text[] types:text[] -> {_HEAD} groups[{_LISTED} type:text]""")
"""Of brokers that have groups of other than the classic type."""

_DESCRIBE: Final = "groups:text[] authorized_operations:bool"
_GROUP: Final = """error_code:int16 error_message:text group:text state:text
    group_epoch:int32 assignment_epoch:int32"""
_ASSIGNED: Final = "topics[topic_id:uuid topic:text partitions:int32[]]"
_TASKS: Final = " ".join(
    f"{kind}[subtopology:text partitions:int32[]]" for kind in ("active", "standby", "warmup")
)
_TASK_OFFSETS: Final = "subtopology:text partition:int32 offset:int64"
_INTERNAL_TOPIC: Final = """topic:text partitions:int32 replication_factor:int16
    configs[key:text value:text]"""

DESCRIBE_CLASSIC: Final = message(f"""15 4 classic:
    {_DESCRIBE}
    -> throttle_time_ms:int32 groups[error_code:int16 group:text state:text protocol_type:text
    protocol:text members[member:text instance_id:text client_id:text host:text metadata:bytes
    assignment:bytes] authorized_operations:int32]""")
DESCRIBE_CONSUMER: Final = message(f"""69 0:
    {_DESCRIBE}
    -> throttle_time_ms:int32 groups[{_GROUP} assignor:text members[member:text instance_id:text
    rack:text epoch:int32 client_id:text host:text topics:text[] pattern:text
    assignment({_ASSIGNED}) target({_ASSIGNED})] authorized_operations:int32]""")
DESCRIBE_STREAMS: Final = message(f"""89 0:
    {_DESCRIBE}
    -> throttle_time_ms:int32 groups[{_GROUP} topology?(epoch:int32 subtopologies[subtopology:text
    source_topics:text[] repartition_sinks:text[] changelogs[{_INTERNAL_TOPIC}]
    repartition_sources[{_INTERNAL_TOPIC}]]) members[member:text epoch:int32 instance_id:text
    rack:text client_id:text host:text topology_epoch:int32 process:text endpoint?(host:text
    port:int16) client_tags[key:text value:text] task_offsets[{_TASK_OFFSETS}]
    task_ends[{_TASK_OFFSETS}] assignment({_TASKS}) target({_TASKS}) classic:bool]
    authorized_operations:int32]""")
DESCRIBE_SHARE: Final = message(f"""77 1:
    {_DESCRIBE}
    -> throttle_time_ms:int32 groups[{_GROUP} assignor:text members[member:text rack:text
    epoch:int32 client_id:text host:text topics:text[] assignment({_ASSIGNED})]
    authorized_operations:int32]""")

FETCH_OFFSETS: Final = message(f"""9 8:
    groups[group:text {_PARTITIONS}] require_stable:bool
    -> throttle_time_ms:int32 groups[group:text topics[topic:text partitions[partition:int32
    offset:int64 leader_epoch:int32 metadata:text error_code:int16]] error_code:int16]""")
"""Of all partitions where ``topics`` is None."""

COMMIT_OFFSETS: Final = message(f"""8 8:
    group:text generation:int32 member:text instance_id:text topics[topic:text
    partitions[partition:int32 offset:int64 leader_epoch:int32 metadata:text]]
    -> throttle_time_ms:int32 {_PARTITION_CODES}""")
"""Of a group without members where the generation is -1."""

FETCH_SHARE_STARTS: Final = message(f"""90 1:
    groups[group:text {_PARTITIONS}]
    -> throttle_time_ms:int32 groups[group:text topics[topic:text topic_id:uuid
    partitions[partition:int32 offset:int64 leader_epoch:int32 lag:int64 error_code:int16
    error_message:text]] error_code:int16 error_message:text]""")
"""Of all partitions where ``topics`` is None; Kafka 4.2 and later."""

SET_SHARE_STARTS: Final = message(f"""91 0:
    group:text topics[topic:text partitions[partition:int32 offset:int64]]
    -> {_HEAD} error_message:text topics[topic:text topic_id:uuid partitions[partition:int32
    error_code:int16 error_message:text]]""")
"""Of a group without members; an absent one is created."""

DESCRIBE_SETTINGS: Final = message("""32 4:
    resources[type:int8 name:text settings:text[]] with_synonyms:bool with_docs:bool
    -> throttle_time_ms:int32 resources[error_code:int16 error_message:text type:int8 name:text
    settings[name:text value:text read_only:bool source:int8 sensitive:bool synonyms[name:text
    value:text source:int8] type:int8 docs:text]]""")
"""librdkafka has no settings of groups."""

LEAVE_GROUP: Final = message(f"""13 5:
    group:text members[member:text instance_id:text reason:text]
    -> {_HEAD} members[member:text instance_id:text error_code:int16]""")
