"""Offsets of partitions by place, time and epoch, and requests to the leaders of partitions."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import IsolationLevel, KafkaError
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from srm.domain.names.topics import TopicPartition
from srm.errors import SrmError, UnavailableError
from srm.kafka.admin import topics
from srm.kafka.admin.clients import Clients, answers_of
from srm.kafka.admin.topics import UNKNOWN_TOPIC_CODES
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.errors import of_code, on_topic, translate
from srm.kafka.wire.messages import Request
from srm.kafka.wire.requests import LogQuery, by_partition, epoch_ends_request

_UNCOMMITTED: Final = IsolationLevel.READ_UNCOMMITTED
# librdkafka keeps the epoch it knows after a restart of the broker, and the higher one of a topic
# that is re-created under the same name, for as long as it lives.
_OTHER_EPOCH = {KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH}

# _NOENT ("no leaders found") is the answer when not one of the partitions has a leader, which is
# also the case when not one of them exists.
_UNKNOWN = topics.UNKNOWN_TOPIC_CODES | {KafkaError._NOENT}  # noqa: SLF001 - local code


def log_starts(
    clients: Clients, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the first offset each partition still holds."""
    return _offsets(clients, dict.fromkeys(partitions, OffsetSpec.earliest()))


def log_ends(clients: Clients, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the last stable offset of each partition."""
    return _offsets(clients, dict.fromkeys(partitions, OffsetSpec.latest()))


def high_watermarks(
    clients: Clients, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the offset after each partition's last record, whatever transactions are open."""
    return _offsets(clients, dict.fromkeys(partitions, OffsetSpec.latest()), _UNCOMMITTED)


def newest_times(
    clients: Clients, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the largest timestamp of each partition that holds a record (KIP-734)."""
    specs = dict.fromkeys(partitions, OffsetSpec.max_timestamp())
    found = _list(clients, specs, _UNCOMMITTED, may_be_none=True)
    return {p: answer.timestamp for p, answer in found.items() if answer.offset >= 0}


def offsets_at(clients: Clients, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return where a time begins in each partition that holds a record so late (KIP-79)."""
    specs = {p: OffsetSpec.for_timestamp(time_ms) for p, time_ms in times.items()}
    return _offsets(clients, specs, _UNCOMMITTED, may_be_none=True)


def _offsets(
    clients: Clients,
    specs: Mapping[TopicPartition, OffsetSpec],
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    *,
    may_be_none: bool = False,
) -> dict[TopicPartition, int]:
    found = _list(clients, specs, isolation, may_be_none=may_be_none)
    return {p: answer.offset for p, answer in found.items() if answer.offset >= 0}


def _list(
    clients: Clients,
    specs: Mapping[TopicPartition, OffsetSpec],
    isolation: IsolationLevel,
    *,
    may_be_none: bool = False,
) -> dict[TopicPartition, ListOffsetsResultInfo]:
    """Ask for one offset of each partition; ``may_be_none``: -1 is an answer."""
    if not specs:
        return {}
    wanted = {KafkaTopicPartition(p.topic, p.partition): specs[p] for p in sorted(specs)}

    def request(timeout_s: float) -> dict[TopicPartition, ListOffsetsResultInfo]:
        unknown: list[TopicPartition] = []

        def error_of(raw: KafkaTopicPartition, error: KafkaError) -> SrmError | None:
            partition = TopicPartition(raw.topic, raw.partition)
            if error.code() in _OTHER_EPOCH:
                clients.discard_admin()  # it keeps to what it knew
            if error.code() in _UNKNOWN:
                unknown.append(partition)
                return None
            where = clients.where(f"listing offsets of {partition}")
            return translate(error, where, on_topic("Describe", raw.topic))

        futures = clients.admin().list_offsets(
            wanted, isolation_level=isolation, request_timeout=timeout_s
        )
        answers = answers_of(futures, timeout_s, error_of)
        found = {TopicPartition(raw.topic, raw.partition): one for raw, one in answers.items()}
        for partition, answer in found.items():
            # librdkafka returns this without an error, also if the connection breaks
            if answer.offset < 0 and not may_be_none:
                where = clients.where(f"listing offsets of {partition}")
                raise UnavailableError(f"{where}: no answer; retry")
        _require_absent(clients, unknown)
        return found

    return clients.call("listing offsets", request)


def _require_absent(clients: Clients, unknown: list[TopicPartition]) -> None:
    """Separate partitions that do not exist from those without a leader or without access."""
    found = topics.describe(clients, {p.topic for p in unknown})
    leaderless = [
        str(p) for p in unknown if p.topic in found and p.partition < found[p.topic].partitions
    ]
    if leaderless:
        raise UnavailableError(
            f"listing offsets on cluster {clients.alias}: no leader yet for {', '.join(leaderless)}"
        )


class PartitionLeader(NamedTuple):
    """The leader of a partition, with the id of its topic."""

    node: int
    epoch: int
    topic_id: bytes


TopicError = Callable[[str, int], SrmError]
"""Makes the error of a broker's code for a topic."""


def topic_errors(clients: Clients, doing: str, operation: str = "Read") -> TopicError:
    """Return what makes the errors of topics; ``operation`` is the right to name."""

    def error(topic: str, code: int) -> SrmError:
        where = clients.where(f"{doing} {topic}")
        if code in UNKNOWN_TOPIC_CODES:  # just deleted, or not yet known to its leader
            return UnavailableError(f"{where}: not known; retry")
        return of_code(code, where, on_topic(operation, topic))

    return error


async def find_leaders(
    brokers: Brokers, partitions: Collection[TopicPartition], error: TopicError
) -> dict[TopicPartition, PartitionLeader]:
    """Return the leaders of the partitions that exist; ``error`` is for one without a leader."""
    wanted = set(partitions)
    leaders: dict[TopicPartition, PartitionLeader] = {}
    metadata = await brokers.look({partition.topic for partition in wanted})
    for topic in metadata["topics"]:
        name, code = topic["topic"], topic["error_code"]
        if code and code not in UNKNOWN_TOPIC_CODES:
            raise error(name, code)
        for found in topic["partitions"]:
            partition = TopicPartition(name, found["partition"])
            if partition not in wanted:
                continue
            if found["leader"] < 0:
                raise error(name, found["error_code"])
            leader = found["leader"], found["leader_epoch"]
            leaders[partition] = PartitionLeader(*leader, topic["topic_id"])
    return leaders


async def query_leaders(
    brokers: Brokers,
    partitions: Collection[TopicPartition],
    make: Callable[[Mapping[TopicPartition, PartitionLeader]], Request],
    error: TopicError,
) -> dict[TopicPartition, Mapping[str, Any]]:
    """Send a request to each leader of partitions; return the answer of each partition."""
    by_node: dict[int, dict[TopicPartition, PartitionLeader]] = defaultdict(dict)
    for partition, leader in sorted((await find_leaders(brokers, partitions, error)).items()):
        by_node[leader.node][partition] = leader
    answers = await asyncio.gather(
        *(brokers.query(node, make(leaders)) for node, leaders in by_node.items())
    )
    found = {partition: each for one in answers for partition, each in by_partition(one).items()}
    for partition, each in found.items():
        if each["error_code"]:
            raise error(partition.topic, each["error_code"])
    return found


def epoch_ends(clients: Clients, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return up to where each log holds an epoch; see the engine's port."""
    doing = "looking up leader epochs of"

    def make(leaders: Mapping[TopicPartition, PartitionLeader]) -> Request:
        return epoch_ends_request(
            LogQuery(partition, leader.epoch, epochs[partition])
            for partition, leader in leaders.items()
        )

    async def request(brokers: Brokers) -> dict[TopicPartition, int]:
        error = topic_errors(clients, doing, "Describe")
        found = await query_leaders(brokers, epochs, make, error)
        # For an epoch missing in its log a leader returns the end of the one before. After an
        # unclean election that end may exceed what the epoch held elsewhere.
        return {
            partition: each["end_offset"] if each["leader_epoch"] == epochs[partition] else -1
            for partition, each in found.items()
        }

    if not epochs:
        return {}
    topics = sorted({partition.topic for partition in epochs})
    needs = on_topic("Describe", *topics)
    return clients.ask("looking up leader epochs", request, needs, as_consumer=True)
