"""End offsets of leader epochs (KIP-320), with one request for each leader."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from srm.domain.names.topics import TopicPartition
from srm.errors import SrmError, UnavailableError
from srm.kafka.admin.clients import Clients
from srm.kafka.admin.errors import of_code
from srm.kafka.admin.partition_leaders import find_leaders
from srm.kafka.admin.topics import UNKNOWN_TOPIC_CODES
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.log_messages import LogQuery, by_partition, epoch_ends_request
from srm.kafka.wire.rights import on_topic

_DOING: Final = "looking up leader epochs"


def epoch_ends(clients: Clients, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return up to where each log holds an epoch; see the engine's port."""
    topics = sorted({partition.topic for partition in epochs})

    def error(topic: str, code: int) -> SrmError:
        where = clients.where(_DOING)
        if code in UNKNOWN_TOPIC_CODES:  # just deleted, or not yet known to its leader
            return UnavailableError(f"{where}: {topic} is not known; retry")
        return of_code(code, where, on_topic("Describe", topic))

    async def request(brokers: Brokers) -> dict[TopicPartition, int]:
        by_node: dict[int, list[LogQuery]] = defaultdict(list)
        for partition, (node, epoch) in (await find_leaders(brokers, epochs, error)).items():
            by_node[node].append(LogQuery(partition, epoch, epochs[partition]))
        requests = {node: epoch_ends_request(queries) for node, queries in by_node.items()}
        answers = await asyncio.gather(*(brokers.query(*each) for each in requests.items()))
        ends: dict[TopicPartition, int] = {}
        for partition, found in (each for one in answers for each in by_partition(one).items()):
            if found["error_code"]:
                raise error(partition.topic, found["error_code"])
            # For an epoch missing in its log a leader returns the end of the one before. After an
            # unclean election that end may exceed what the epoch held elsewhere.
            is_held = found["leader_epoch"] == epochs[partition]
            ends[partition] = found["end_offset"] if is_held else -1
        return ends

    if not epochs:
        return {}
    return clients.read_brokers(_DOING, request, on_topic("Describe", *topics))
