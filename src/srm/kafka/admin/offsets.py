"""Offsets of partitions by place, time and epoch, from the leaders of the partitions."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

from srm.config.model import ClientKind
from srm.domain.names.topics import TopicPartition
from srm.errors import SrmError, UnavailableError
from srm.kafka.admin.clients import Clients
from srm.kafka.admin.topics import UNKNOWN_TOPIC_CODES
from srm.kafka.wire import requests as api
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.errors import of_code, on_topic
from srm.kafka.wire.messages import Request

Places = Collection[TopicPartition]
Answers = dict[TopicPartition, api.Answer]
_Offsets = dict[TopicPartition, int]
_Values = Mapping[TopicPartition, int]
TopicError = Callable[[str, int], SrmError]
"""Makes the error of a broker's code for a topic."""


def log_starts(clients: Clients, partitions: Places) -> _Offsets:
    return _list(clients, dict.fromkeys(partitions, api.EARLIEST))


def log_ends(clients: Clients, partitions: Places) -> _Offsets:
    return _list(clients, dict.fromkeys(partitions, api.LATEST), committed=True)


def high_watermarks(clients: Clients, partitions: Places) -> _Offsets:
    return _list(clients, dict.fromkeys(partitions, api.LATEST))


def newest_times(clients: Clients, partitions: Places) -> _Offsets:
    return _list(clients, dict.fromkeys(partitions, api.MAX_TIMESTAMP), "timestamp")


def offsets_at(clients: Clients, times: _Values) -> _Offsets:
    return _list(clients, times)


def epoch_ends(clients: Clients, epochs: _Values) -> _Offsets:
    doing = "looking up leader epochs"
    found = _query_logs(clients, doing, epochs, api.epoch_ends_request, "consumer")
    # For an epoch missing in its log a leader returns the end of the one before. After an unclean
    # election that end may exceed what the epoch held elsewhere.
    return {
        partition: each["end_offset"] if each["leader_epoch"] == epochs[partition] else -1
        for partition, each in found.items()
    }


def _list(
    clients: Clients, times: _Values, field: str = "offset", *, committed: bool = False
) -> _Offsets:
    make = partial(api.offsets_request, committed=committed)
    found = _query_logs(clients, "listing offsets", times, make)
    return {p: one[field] for p, one in found.items() if one["offset"] >= 0}


def _query_logs(
    clients: Clients, doing: str, values: _Values, make: api.LogMaker, client: ClientKind = "admin"
) -> Answers:
    if not values:
        return {}

    def of_leader(leaders: Leaders) -> Request:
        return make(api.LogQuery(p, leader.epoch, values[p]) for p, leader in leaders.items())

    async def request(brokers: Brokers) -> Answers:
        error = topic_errors(clients, f"{doing} of", "Describe")
        return await query_leaders(brokers, values, of_leader, error)

    needs = on_topic("Describe", *{p.topic for p in values})
    return clients.request(doing, request, needs, client=client)


class PartitionLeader(NamedTuple):
    """The leader of a partition, with the id of its topic."""

    node: int
    epoch: int
    topic_id: bytes


Leaders = Mapping[TopicPartition, PartitionLeader]


def topic_errors(clients: Clients, doing: str, operation: str = "Read") -> TopicError:
    """Return what makes the errors of topics; ``operation`` is the right to name."""

    def error(topic: str, code: int) -> SrmError:
        where = clients.label(f"{doing} {topic}")
        if code in UNKNOWN_TOPIC_CODES:  # just deleted, or not yet known to its leader
            return UnavailableError(f"{where}: not known; retry")
        return of_code(code, where, on_topic(operation, topic))

    return error


async def find_leaders(brokers: Brokers, partitions: Places, error: TopicError) -> Leaders:
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
            node, epoch = found["leader"], found["leader_epoch"]
            leaders[partition] = PartitionLeader(node, epoch, topic["topic_id"])
    return leaders


async def query_leaders(
    brokers: Brokers, partitions: Places, make: Callable[[Leaders], Request], error: TopicError
) -> Answers:
    by_node: dict[int, dict[TopicPartition, PartitionLeader]] = defaultdict(dict)
    for partition, leader in sorted((await find_leaders(brokers, partitions, error)).items()):
        by_node[leader.node][partition] = leader
    answers = await asyncio.gather(
        *(brokers.query(node, make(leaders)) for node, leaders in by_node.items())
    )
    found = {p: each for one in answers for p, each in api.by_partition(one).items()}
    for partition, each in found.items():
        if each["error_code"]:
            raise error(partition.topic, each["error_code"])
    return found
