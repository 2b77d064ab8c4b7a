"""Requests to leaders of partitions that are sent once, such as for ends of epochs (KIP-320)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from srm.domain.names.topics import TopicPartition
from srm.errors import SrmError, UnavailableError
from srm.kafka.admin.clients import Clients
from srm.kafka.admin.errors import of_code
from srm.kafka.admin.topics import UNKNOWN_TOPIC_CODES
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.log_messages import LogQuery, by_partition, epoch_ends_request
from srm.kafka.wire.messages import Request
from srm.kafka.wire.rights import on_topic


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
    return clients.read_brokers("looking up leader epochs", request, on_topic("Describe", *topics))
