"""Reading planned offset ranges inside Spark tasks, with a client of its own for each range."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from srm.domain.offset_map.offset_ranges import OffsetRange
from srm.errors import ConflictError, UnavailableError
from srm.kafka.admin.errors import kafka_errors, translate

SILENCE_SECONDS = 60.0
_BATCH = 2000

_READER_SETTINGS: Mapping[str, Any] = {
    # A group id is demanded by the client; nothing is committed, so no group comes to exist.
    "group.id": "srm-range-reader",
    "enable.auto.commit": False,
    # The end of a log may be a marker, which is never delivered: only this event shows the end.
    "enable.partition.eof": True,
    # A range that retention has cut since must not be read from somewhere else.
    "auto.offset.reset": "error",
    "check.crcs": True,
    "queued.max.messages.kbytes": 16384,
}


@contextmanager
def reader(properties: Mapping[str, str], isolation: str) -> Iterator[Consumer]:
    """Give a consumer for :func:`read` and close it at the end.

    ``isolation``: ``read_committed`` or ``read_uncommitted``.
    """
    with kafka_errors("open a range reader"):
        consumer = Consumer(
            dict(properties) | dict(_READER_SETTINGS, **{"isolation.level": isolation})
        )
    try:
        yield consumer
    finally:
        consumer.close()


def read(
    consumer: Consumer, wanted: OffsetRange, silence_seconds: float = SILENCE_SECONDS
) -> Iterator[list[Message]]:
    """Read the records of a range, in order, as lists.

    The range's end must not lie behind the log's end (under ``read_committed`` its last stable
    offset) as seen when it was planned, or the call waits for it.

    Raises:
        ConflictError: retention has removed a part of the range since it was planned.
        UnavailableError: nothing came for ``silence_seconds``.
    """
    if wanted.size == 0:
        return
    with kafka_errors(f"read {wanted}"):
        consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.start)])
        deadline = time.monotonic() + silence_seconds
        complete = False
        while not complete:
            polled = consumer.consume(_BATCH, 0.1)
            records, complete = _within(polled, wanted)
            if records:
                yield records
            if polled:
                deadline = time.monotonic() + silence_seconds
            elif time.monotonic() > deadline:
                raise UnavailableError(
                    f"{wanted}: no record came for {silence_seconds:.0f} s; try again"
                )


def _within(polled: list[Message], wanted: OffsetRange) -> tuple[list[Message], bool]:
    """Cut the polled records to the range, and return whether the range's end was met."""
    records: list[Message] = []
    for message in polled:
        error = message.error()
        if (message.topic(), message.partition()) != (wanted.topic, wanted.partition):
            # Left over from the range that this consumer read before.
            continue
        if error is None:
            if message.offset() >= wanted.end:
                return records, True
            records.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's public constant
            if message.offset() >= wanted.end:
                return records, True
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001
            raise ConflictError(f"{wanted} is no longer in the log (retention?): plan it again")
        else:
            raise translate(error, f"read {wanted}")
    return records, bool(records) and records[-1].offset() == wanted.end - 1
