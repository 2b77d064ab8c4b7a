"""Open transactions, the producers that leaders remember (KIP-664), and topics written together.

Layouts: TransactionLogKey.json and TransactionLogValue.json of Apache Kafka, versions 0 and 1.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import closing
from operator import itemgetter
from typing import Final

from confluent_kafka import TopicPartition as KafkaTopicPartition

from srm.clock import now_ms
from srm.domain.names.internal_topics import TRANSACTIONS
from srm.domain.names.topics import ActiveProducer, OpenTransaction, TopicPartition
from srm.errors import AuthorizationError, SrmError
from srm.kafka.admin.clients import Clients, drain, open_reader, position_after
from srm.kafka.admin.offsets import Places, query_leaders, topic_errors
from srm.kafka.admin.topics import describe
from srm.kafka.wire import requests as api
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.errors import kafka_errors
from srm.kafka.wire.messages import CLASSIC, FLEXIBLE, INT16, Cursor, Request, layout

_DOING: Final = "describing producers"
_logger = logging.getLogger(__name__)
_Names = dict[int, tuple[str, int | None]]
_FORMS: Final = {0: CLASSIC, 1: FLEXIBLE}
"""By version."""
_VALUE: Final = layout("""producer_id:int64 producer_epoch:int16 timeout_ms:int32 status:int8
    topics[topic:text partitions:int32[]] updated_ms:int64 started_ms:int64""")
_POLL_S: Final = 0.5


def active_producers(
    clients: Clients, partitions: Places
) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
    if not partitions:
        return {}
    found = clients.request(_DOING, lambda brokers: _producers(clients, brokers, partitions))
    return {
        partition: tuple(
            ActiveProducer(
                partition,
                producer_id=state["producer_id"],
                producer_epoch=state["producer_epoch"],
                last_timestamp_ms=state["last_timestamp_ms"],
                last_sequence=state["last_sequence"],
            )
            for state in sorted(states, key=itemgetter("producer_id"))
        )
        for partition, states in found.items()
    }


def open_transactions(
    clients: Clients, partitions: Places
) -> dict[TopicPartition, tuple[OpenTransaction, ...]]:
    async def request(brokers: Brokers) -> dict[TopicPartition, tuple[OpenTransaction, ...]]:
        found: dict[TopicPartition, list[OpenTransaction]] = defaultdict(list)
        producers = (await _producers(clients, brokers, partitions)).items()
        blocking = [(p, s) for p, states in producers for s in states if s["first_offset"] >= 0]
        names = await _names(brokers, {state["producer_id"] for _, state in blocking})
        at_ms = now_ms()
        for partition, state in sorted(blocking, key=lambda each: each[1]["first_offset"]):
            name, start_ms = names.get(state["producer_id"], (None, None))
            found[partition].append(
                OpenTransaction(
                    partition,
                    first_offset=state["first_offset"],
                    producer_id=state["producer_id"],
                    producer_epoch=state["producer_epoch"],
                    transactional_id=name,
                    age_ms=None if start_ms is None else max(0, at_ms - start_ms),
                )
            )
        return {partition: tuple(found[partition]) for partition in sorted(found)}

    return clients.request(_DOING, request) if partitions else {}


async def _producers(
    clients: Clients, brokers: Brokers, partitions: Places
) -> dict[TopicPartition, list[api.Answer]]:
    def make(leaders: Iterable[TopicPartition]) -> Request:
        return api.DESCRIBE_PRODUCERS(api.numbers_by_topic(leaders))

    error = topic_errors(clients, f"{_DOING} of")
    found = await query_leaders(brokers, partitions, make, error)
    return {p: each["producers"] for p, each in sorted(found.items()) if each["producers"]}


async def _names(brokers: Brokers, producer_ids: Collection[int]) -> _Names:
    """Return transactional ids and start times (epoch ms), without those hidden from srm."""
    found: _Names = {}
    if not producer_ids:
        return found
    for node in brokers.nodes:
        try:
            listed = await brokers.query(node, api.LIST_TRANSACTIONS([], sorted(producer_ids)))
            names = {t["transactional_id"]: t["producer_id"] for t in listed["transactions"]}
            found |= {producer_id: (name, None) for name, producer_id in names.items()}
            if not names:
                continue
            described = await brokers.query(node, api.DESCRIBE_TRANSACTIONS(sorted(names)))
        except SrmError as error:
            _logger.debug("transactions of node %d: %s", node, error)
            continue
        for transaction in described["transactions"]:
            if not transaction["error_code"] and transaction["start_ms"] >= 0:
                name = transaction["transactional_id"]
                found[names[name]] = (name, transaction["start_ms"])
    return found


def topics_of(value: bytes) -> frozenset[str]:
    """Return the topics that a record names; none of an ended or unknown transaction."""
    data = Cursor(value)
    form = _FORMS.get(INT16.decode(data, CLASSIC))
    if form is None:
        return frozenset()
    names = (found["topic"] for found in _VALUE.decode(data, form)["topics"] or ())
    return frozenset(name for name in names if not name.startswith("__"))


def largest(sets: Iterable[frozenset[str]]) -> tuple[frozenset[str], ...]:
    """Return the sets of two topics and more that are in no other, in a fixed order."""
    several = {names for names in sets if len(names) > 1}
    kept = (names for names in several if not any(names < other for other in several))
    return tuple(sorted(kept, key=sorted))


def written_together(clients: Clients) -> tuple[frozenset[str], ...] | None:
    deadline = time.monotonic() + min(clients.timeout_s, 30.0)
    try:
        found = describe(clients, [TRANSACTIONS], "Read").get(TRANSACTIONS)
        if found is None:
            return ()
        sets = _sets(clients, found.partitions, deadline)
    except AuthorizationError as error:
        _logger.debug("%s", error)
        return None
    return None if sets is None else largest(sets)


def _sets(clients: Clients, partitions: int, deadline: float) -> set[frozenset[str]] | None:
    """Read the whole log as it is now; None where the time does not suffice."""
    where = clients.label(f"reading {TRANSACTIONS}")
    sets: set[frozenset[str]] = set()
    unread = set(range(partitions))
    with kafka_errors(where), closing(open_reader(clients.props.consumer)) as consumer:
        consumer.assign([KafkaTopicPartition(TRANSACTIONS, number, 0) for number in unread])
        while unread and time.monotonic() < deadline:
            for message in drain(consumer, _POLL_S):
                position = position_after(message, where)
                if message.error() is not None:
                    if position is not None:  # the end of a partition
                        unread.discard(message.partition())
                elif message.value():
                    sets.add(topics_of(message.value()))
    if unread:
        _logger.warning("%s: %d of %d partitions not read in time", where, len(unread), partitions)
        return None
    return sets
