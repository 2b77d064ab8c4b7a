"""End offsets of leader epochs (KIP-320), with one request for each leader."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping

from srm.domain.names.topics import TopicPartition
from srm.errors import UnavailableError
from srm.kafka.admin.clients import Clients
from srm.kafka.admin.errors import of_code
from srm.kafka.admin.topics import UNKNOWN_TOPIC_CODES
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.log_messages import by_partition, epoch_ends_request
from srm.kafka.wire.rights import on_topic
from srm.replication import codes

_Epochs = Mapping[TopicPartition, int]
_DOING = "looking up leader epochs"


def epoch_ends(clients: Clients, epochs: _Epochs) -> dict[TopicPartition, int]:
    """Return up to where each log holds an epoch; see the engine's port."""
    topics = sorted({partition.topic for partition in epochs})

    async def request(brokers: Brokers) -> dict[TopicPartition, int]:
        by_node = await _by_leader(clients, brokers, epochs)
        answers = await asyncio.gather(
            *(_ask(clients, brokers, node, asked) for node, asked in by_node.items())
        )
        return {partition: end for answer in answers for partition, end in answer.items()}

    if not epochs:
        return {}
    return clients.read_brokers(_DOING, request, on_topic("Describe", *topics))


async def _by_leader(
    clients: Clients, brokers: Brokers, epochs: _Epochs
) -> dict[int, dict[TopicPartition, int]]:
    metadata = await brokers.look(sorted({partition.topic for partition in epochs}))
    led: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    for topic in metadata["topics"]:
        name, error = topic["topic"], topic["error_code"]
        if error and error not in UNKNOWN_TOPIC_CODES:
            raise of_code(error, clients.where(_DOING), on_topic("Describe", name))
        for found in topic["partitions"]:
            partition = TopicPartition(name, found["partition"])
            if partition in epochs and found["leader"] < 0:
                raise UnavailableError(f"{clients.where(_DOING)}: {partition} has no leader; retry")
            if partition in epochs:
                led[found["leader"]][partition] = epochs[partition]
    return led


async def _ask(
    clients: Clients, brokers: Brokers, node: int, epochs: _Epochs
) -> dict[TopicPartition, int]:
    answer = await brokers.ask(node, epoch_ends_request(epochs))
    ends: dict[TopicPartition, int] = {}
    for place, found in by_partition(answer).items():
        topic, error = place.topic, found["error_code"]
        if error in codes.LEADERSHIP or error in UNKNOWN_TOPIC_CODES:
            raise UnavailableError(f"{clients.where(_DOING)}: {topic} moves; retry")
        if error:
            raise of_code(error, clients.where(_DOING), on_topic("Describe", topic))
        # For an epoch missing in its log a leader returns the end of the one before. After an
        # unclean election that end may exceed what the epoch held elsewhere.
        ends[place] = found["end_offset"] if found["leader_epoch"] == epochs[place] else -1
    return ends
