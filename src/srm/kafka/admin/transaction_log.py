"""Topics that applications write in one transaction, read from ``__transaction_state``.

Layouts: TransactionLogKey.json and TransactionLogValue.json of Apache Kafka, versions 0 and 1.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from io import BytesIO
from typing import Final

from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from srm.errors import AuthorizationError
from srm.kafka.admin.clients import ClientLog, Clients, drain, position_after, reader_props
from srm.kafka.admin.errors import kafka_errors
from srm.kafka.admin.topics import describe
from srm.kafka.wire.messages import (
    CLASSIC,
    FLEXIBLE,
    INT8,
    INT16,
    INT32,
    INT64,
    NUMBERS,
    TEXT,
    Structure,
    array,
)

TOPIC: Final = "__transaction_state"
_FORMS: Final = {0: CLASSIC, 1: FLEXIBLE}
"""By version."""
_VALUE: Final = Structure(
    producer_id=INT64,
    producer_epoch=INT16,
    timeout_ms=INT32,
    status=INT8,
    topics=array(topic=TEXT, partitions=NUMBERS),
    updated_ms=INT64,
    started_ms=INT64,
)

_INTERNAL: Final = "__"
_LONGEST_S: Final = 30.0
_POLL_S: Final = 0.5
_logger = logging.getLogger(__name__)


def topics_of(value: bytes) -> frozenset[str]:
    """Return the topics that a record names; none of an ended or unknown transaction."""
    data = BytesIO(value)
    form = _FORMS.get(INT16.decode(data, CLASSIC))
    if form is None:
        return frozenset()
    names = (found["topic"] for found in _VALUE.decode(data, form)["topics"] or ())
    return frozenset(name for name in names if not name.startswith(_INTERNAL))


def largest(sets: Iterable[frozenset[str]]) -> tuple[frozenset[str], ...]:
    """Return the sets of two topics and more that are in no other, in a fixed order."""
    several = {names for names in sets if len(names) > 1}
    kept = (names for names in several if not any(names < other for other in several))
    return tuple(sorted(kept, key=sorted))


def written_together(clients: Clients) -> tuple[frozenset[str], ...] | None:
    """Return the sets of topics that one transaction was seen to write; see the engine's port."""
    deadline = time.monotonic() + min(clients.timeout_s, _LONGEST_S)
    try:
        found = describe(clients, [TOPIC], "Read").get(TOPIC)
        if found is None:
            return ()
        sets = _sets(clients, found.partitions, deadline)
    except AuthorizationError as error:
        _logger.debug("%s", error)
        return None
    return None if sets is None else largest(sets)


def _sets(clients: Clients, partitions: int, deadline: float) -> set[frozenset[str]] | None:
    """Read the whole log as it is now; None where the time does not suffice."""
    where = clients.where(f"reading {TOPIC}")
    sets: set[frozenset[str]] = set()
    unread = set(range(partitions))
    with kafka_errors(where):
        consumer = Consumer(reader_props(clients.consumer_props), logger=ClientLog())
        try:
            consumer.assign([KafkaTopicPartition(TOPIC, number, 0) for number in unread])
            while unread and time.monotonic() < deadline:
                for message in drain(consumer, _POLL_S):
                    _take(message, where, sets, unread)
        finally:
            consumer.close()
    if unread:
        _logger.warning("%s: %d of %d partitions not read in time", where, len(unread), partitions)
        return None
    return sets


def _take(message: Message, where: str, sets: set[frozenset[str]], unread: set[int]) -> None:
    """Keep the topics of a record; an event at the end of a partition ends the reading of it."""
    position = position_after(message, where)
    if message.error() is None and message.value():
        sets.add(topics_of(message.value()))
    elif message.error() is not None and position is not None:
        unread.discard(message.partition())
