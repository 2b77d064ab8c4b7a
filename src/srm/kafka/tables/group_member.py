"""A consumer that joins a group for a moment, to see what the group's offsets lead to."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, Message

from srm.domain.names.topics import TopicPartition
from srm.domain.verification.compared_record import ComparedRecord
from srm.kafka.admin.clients import ClientLog, Clients, drain
from srm.kafka.admin.errors import kafka_errors, translate
from srm.kafka.wire.rights import on_group, on_topic

_POLL_S: Final = 0.2
_SESSION_MS: Final = 6_000
"""The least that brokers take by default: a member that was killed is gone so soon."""
_NO_POSITION: Final = frozenset(
    {KafkaError._NO_OFFSET, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001 - local codes
)


def read_first(
    clients: Clients, group: str, partitions: Collection[TopicPartition], limit_s: float
) -> dict[TopicPartition, ComparedRecord | None]:
    """Read as a member of a group; see the engine's port."""
    wanted = set(partitions)
    if not wanted:
        return {}
    deadline = time.monotonic() + limit_s
    where = clients.where(f"reading as a member of group {group!r}")
    topics = sorted({partition.topic for partition in wanted})
    needs = {**on_group("Read", group), **on_topic("Read", *topics)}
    found: dict[TopicPartition, ComparedRecord | None] = {}
    with kafka_errors(where, needs):
        consumer = Consumer(_settings(clients, group), logger=ClientLog())
        try:
            consumer.subscribe(topics)
            without = set[TopicPartition]()
            while time.monotonic() < deadline and wanted - found.keys() - without:
                for message in drain(consumer, _POLL_S):
                    _take(message, wanted, found, without, where)
        finally:
            consumer.close()
    return found


def _settings(clients: Clients, group: str) -> dict[str, object]:
    return {
        "fetch.wait.max.ms": 10,
        **clients.consumer_props,
        "group.id": group,
        "group.protocol": "classic",
        "session.timeout.ms": _SESSION_MS,
        "heartbeat.interval.ms": _SESSION_MS // 3,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        # A partition without an offset is said to have none, not read from somewhere.
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
        "queued.max.messages.kbytes": 4096,
        "fetch.message.max.bytes": 64 << 10,
    }


def _take(
    message: Message,
    wanted: Collection[TopicPartition],
    found: dict[TopicPartition, ComparedRecord | None],
    without: set[TopicPartition],
    where: str,
) -> None:
    """Keep the first record of a partition, or that its log has none."""
    error = message.error()
    place = TopicPartition(message.topic() or "", max(0, message.partition() or 0))
    if error is None:
        if place in wanted:
            found.setdefault(place, _record(message))
    elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - public constant
        if place in wanted:
            found.setdefault(place, None)
    elif error.code() in _NO_POSITION:
        without.add(place)
    elif not (failure := translate(error, where)).retriable:
        raise failure


def _record(message: Message) -> ComparedRecord:
    kind, time_ms = message.timestamp()
    headers = tuple((name, value) for name, value in message.headers() or ())
    stamped = kind == TIMESTAMP_LOG_APPEND_TIME
    return ComparedRecord(
        message.offset(), message.key(), message.value(), headers, time_ms, stamped
    )
