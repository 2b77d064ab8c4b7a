"""Read whole partitions with a plain client, to compare two logs record by record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, TopicPartition

from srm.errors import UnavailableError

_STALLED_S = 20.0


@dataclass(frozen=True, slots=True)
class LoggedRecord:
    """Everything of one record that replication promises to keep."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: tuple[int, int]


def read_log(bootstrap: str, topic: str, partition: int) -> list[tuple[int, LoggedRecord]]:
    """Return (offset, record) of all committed records of a partition, in order.

    Raises:
        UnavailableError: the partition cannot be read to its end.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "srm-testing-logs",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
    )
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
        consumer.assign([TopicPartition(topic, partition, low)])
        return list(_to_end(consumer, high, f"{topic}-{partition}"))
    finally:
        consumer.close()


def _to_end(consumer: Consumer, high: int, where: str) -> Iterator[tuple[int, LoggedRecord]]:
    heard = time.monotonic()
    while time.monotonic() - heard < _STALLED_S:
        for message in consumer.consume(10_000, 0.2):
            heard = time.monotonic()
            error = message.error()
            if error is None:
                headers = tuple((name, value) for name, value in message.headers() or ())
                yield (
                    message.offset(),
                    LoggedRecord(message.key(), message.value(), headers, message.timestamp()),
                )
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - public constant
                # On a busy broker an end is sometimes reported before the first record arrives.
                if message.offset() >= high:
                    return
            else:
                raise UnavailableError(f"{where}: {error}")
    raise UnavailableError(f"{where}: nothing to read for {_STALLED_S:.0f} s, and no end either")


def first_difference(
    source: list[tuple[int, LoggedRecord]], target: list[tuple[int, LoggedRecord]]
) -> str | None:
    """Describe where two logs part, ignoring offsets; None when they hold the same records."""
    for index, ((at, left), (there, right)) in enumerate(zip(source, target, strict=False)):
        if left != right:
            return f"record {index}: source offset {at} {left} but target offset {there} {right}"
    if len(source) != len(target):
        return f"source has {len(source)} records, target {len(target)}"
    return None
