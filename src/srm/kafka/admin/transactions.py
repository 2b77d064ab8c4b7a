"""Open transactions and the producers that leaders remember (KIP-664)."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from operator import itemgetter
from typing import Any, Final

from srm.clock import now_ms
from srm.domain.names.topics import TopicPartition
from srm.domain.names.transactions import ActiveProducer, OpenTransaction
from srm.errors import SrmError
from srm.kafka.admin.clients import Clients
from srm.kafka.admin.leader_queries import query_leaders, topic_errors
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.messages import Request
from srm.kafka.wire.transaction_messages import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
)

_DOING: Final = "describing producers"
_logger = logging.getLogger(__name__)


def active_producers(
    clients: Clients, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
    """Return the producers that leaders remember; see the engine's port."""

    async def request(brokers: Brokers) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        found = await _producers(clients, brokers, partitions)
        return {
            partition: tuple(
                ActiveProducer(
                    partition,
                    state["producer_id"],
                    state["producer_epoch"],
                    state["last_timestamp_ms"],
                    state["last_sequence"],
                )
                for state in sorted(states, key=itemgetter("producer_id"))
            )
            for partition, states in found.items()
        }

    return clients.ask(_DOING, request) if partitions else {}


def open_transactions(
    clients: Clients, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[OpenTransaction, ...]]:
    """Return the open transactions of partitions; see the engine's port."""

    async def request(brokers: Brokers) -> dict[TopicPartition, tuple[OpenTransaction, ...]]:
        blocking = {
            partition: [state for state in states if state["first_offset"] >= 0]
            for partition, states in (await _producers(clients, brokers, partitions)).items()
        }
        ids = {state["producer_id"] for states in blocking.values() for state in states}
        names = await _names(brokers, ids)
        at_ms = now_ms()

        def transaction(partition: TopicPartition, state: Mapping[str, Any]) -> OpenTransaction:
            name, start_ms = names.get(state["producer_id"], (None, None))
            return OpenTransaction(
                partition,
                state["first_offset"],
                state["producer_id"],
                state["producer_epoch"],
                name,
                None if start_ms is None else max(0, at_ms - start_ms),
            )

        return {
            partition: tuple(
                transaction(partition, state)
                for state in sorted(states, key=itemgetter("first_offset"))
            )
            for partition, states in blocking.items()
            if states
        }

    return clients.ask(_DOING, request) if partitions else {}


async def _producers(
    clients: Clients, brokers: Brokers, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, list[Mapping[str, Any]]]:
    """Return what the leaders of partitions know of their producers, where there are any."""

    def make(leaders: Iterable[TopicPartition]) -> Request:
        topics: dict[str, list[int]] = defaultdict(list)
        for topic, number in leaders:
            topics[topic].append(number)
        return DESCRIBE_PRODUCERS(list(topics.items()))

    error = topic_errors(clients, f"{_DOING} of")
    found = await query_leaders(brokers, partitions, make, error)
    return {p: each["producers"] for p, each in sorted(found.items()) if each["producers"]}


async def _names(
    brokers: Brokers, producer_ids: Collection[int]
) -> dict[int, tuple[str, int | None]]:
    """Return transactional ids and start times (epoch ms), without those hidden from srm."""
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
