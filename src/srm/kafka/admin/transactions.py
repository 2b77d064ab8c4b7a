"""Open transactions and the producers that leaders remember (KIP-664)."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, TypeVar

from srm.clock import now_ms
from srm.domain.names.topics import TopicPartition
from srm.domain.names.transactions import ActiveProducer, OpenTransaction
from srm.errors import SrmError, UnavailableError
from srm.kafka.admin.clients import Clients
from srm.kafka.admin.errors import of_code
from srm.kafka.admin.partition_leaders import find_leaders
from srm.kafka.admin.topics import UNKNOWN_TOPIC_CODES
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.log_messages import by_partition
from srm.kafka.wire.rights import on_topic
from srm.kafka.wire.transaction_messages import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
)

_DOING: Final = "describing producers"
_logger = logging.getLogger(__name__)
_T = TypeVar("_T", OpenTransaction, ActiveProducer)


def active_producers(
    clients: Clients, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
    """Return the producers that leaders remember; see the engine's port."""

    async def request(brokers: Brokers) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        states = await _producers(clients, brokers, partitions)
        return _by_partition(
            [
                ActiveProducer(
                    partition,
                    state["producer_id"],
                    state["producer_epoch"],
                    state["last_timestamp_ms"],
                    state["last_sequence"],
                )
                for partition, state in sorted(
                    states, key=lambda found: (found[0], found[1]["producer_id"])
                )
            ]
        )

    return clients.ask(_DOING, request) if partitions else {}


def open_transactions(
    clients: Clients, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[OpenTransaction, ...]]:
    """Return the open transactions of partitions; see the engine's port."""

    async def request(brokers: Brokers) -> dict[TopicPartition, tuple[OpenTransaction, ...]]:
        states = await _producers(clients, brokers, partitions)
        blocking = [found for found in states if found[1]["first_offset"] >= 0]
        names = await _names(brokers, {state["producer_id"] for _, state in blocking})
        at_ms = now_ms()
        found = []
        for partition, state in sorted(
            blocking, key=lambda found: (found[0], found[1]["first_offset"])
        ):
            name, start_ms = names.get(state["producer_id"], (None, None))
            found.append(
                OpenTransaction(
                    partition,
                    state["first_offset"],
                    state["producer_id"],
                    state["producer_epoch"],
                    name,
                    None if start_ms is None else max(0, at_ms - start_ms),
                )
            )
        return _by_partition(found)

    return clients.ask(_DOING, request) if partitions else {}


def _by_partition(found: list[_T]) -> dict[TopicPartition, tuple[_T, ...]]:
    return {p: tuple(some) for p, some in groupby(found, key=attrgetter("partition"))}


async def _producers(
    clients: Clients, brokers: Brokers, partitions: Collection[TopicPartition]
) -> list[tuple[TopicPartition, Mapping[str, Any]]]:
    """Return what the leaders of partitions know of their producers, partition by partition."""
    by_node: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    leaders = await find_leaders(brokers, partitions, partial(_error, clients))
    for (topic, number), leader in sorted(leaders.items()):
        by_node[leader.node][topic].append(number)
    answers = await asyncio.gather(
        *[
            brokers.query(node, DESCRIBE_PRODUCERS(list(topics.items())))
            for node, topics in by_node.items()
        ]
    )
    found = []
    for partition, told in (each for one in answers for each in by_partition(one).items()):
        if told["error_code"]:
            raise _error(clients, partition.topic, told["error_code"])
        found += [(partition, state) for state in told["producers"]]
    return found


def _error(clients: Clients, topic: str, code: int) -> SrmError:
    where = clients.where(f"{_DOING} of {topic}")
    if code in UNKNOWN_TOPIC_CODES:  # just deleted, or not yet known to its leader
        return UnavailableError(f"{where}: not known; retry")
    return of_code(code, where, on_topic("Read", topic))


async def _names(
    brokers: Brokers, producer_ids: Collection[int]
) -> dict[int, tuple[str, int | None]]:
    """Return transactional ids and start times (epoch ms), as far as coordinators report them.

    Coordinators omit transactions that srm may not describe.
    """
    found: dict[int, tuple[str, int | None]] = {}
    if not producer_ids:
        return found
    for node in brokers.nodes:
        try:
            listed = await brokers.query(node, LIST_TRANSACTIONS([], sorted(producer_ids)))
            names = {t["transactional_id"]: t["producer_id"] for t in listed["transactions"]}
            found |= {producer_id: (name, None) for name, producer_id in names.items()}
            if not names:
                continue
            described = await brokers.query(node, DESCRIBE_TRANSACTIONS(sorted(names)))
        except SrmError as error:
            _logger.debug("transactions of node %d: %s", node, error)
            continue
        for transaction in described["transactions"]:
            if not transaction["error_code"] and transaction["start_ms"] >= 0:
                name = transaction["transactional_id"]
                found[names[name]] = (name, transaction["start_ms"])
    return found
