"""Read whole partitions with a plain client, to compare two logs record by record."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from srm.errors import UnavailableError

_STALLED_S = 60.0
_ELECTION = {
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}


@dataclass(frozen=True, slots=True)
class LoggedRecord:
    """Everything of one record that replication promises to keep."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: tuple[int, int]


Log = list[tuple[int, LoggedRecord]]


def read_log(cluster: str | Mapping[str, str], topic: str, partition: int) -> Log:
    """Return (offset, record) of all committed records of a partition, in order.

    ``cluster`` is its bootstrap servers, or all librdkafka properties that a client of it needs.
    UnavailableError: the partition cannot be read to its end.
    """
    return read_logs(cluster, [(topic, partition)])[topic, partition]


def read_logs(
    cluster: str | Mapping[str, str], partitions: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], Log]:
    """Read several partitions at once, see :func:`read_log`."""
    consumer = Consumer(
        {
            **({"bootstrap.servers": cluster} if isinstance(cluster, str) else cluster),
            "group.id": "srm-testing-logs",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
    )
    try:
        starts, ends = [], {}
        for topic, partition in partitions:
            place = TopicPartition(topic, partition)
            low, high = _watermarks(consumer, place)
            starts.append(TopicPartition(topic, partition, low))
            ends[topic, partition] = high
        consumer.assign(starts)
        return _to_ends(consumer, ends)
    finally:
        consumer.close()


def _watermarks(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Return start and end of a log; a leader that was just elected does not know them at once."""
    deadline = time.monotonic() + _STALLED_S
    while True:
        try:
            found: tuple[int, int] = consumer.get_watermark_offsets(place, timeout=_STALLED_S)
        except KafkaException as error:
            if error.args[0].code() not in _ELECTION or time.monotonic() > deadline:
                raise
            time.sleep(0.1)  # between two questions
        else:
            return found


def _to_ends(consumer: Consumer, ends: dict[tuple[str, int], int]) -> dict[tuple[str, int], Log]:
    logs: dict[tuple[str, int], Log] = {place: [] for place in ends}
    reading = set(ends)
    heard = time.monotonic()
    while reading:
        if time.monotonic() - heard > _STALLED_S:
            raise UnavailableError(
                f"{sorted(reading)}: nothing to read for {_STALLED_S:.0f} s, and no end either"
            )
        for message in consumer.consume(10_000, 0.1):
            heard = time.monotonic()
            place = (message.topic(), message.partition())
            error = message.error()
            if error is None:
                logs[place].append((message.offset(), _log_records(message)))
                # While others write, an end is never reported.
                if message.offset() + 1 >= ends[place]:
                    reading.discard(place)
            elif error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - public constant
                raise UnavailableError(f"{place}: {error}")
            # On a busy broker an end is sometimes reported before the first record arrives.
            elif message.offset() >= ends[place]:
                reading.discard(place)
    return logs


def _log_records(message: Message) -> LoggedRecord:
    headers = tuple((name, value) for name, value in message.headers() or ())
    return LoggedRecord(message.key(), message.value(), headers, message.timestamp())


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
