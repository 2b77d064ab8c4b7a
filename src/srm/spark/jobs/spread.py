"""Python work spread over Spark tasks, and offset ranges read in them.

A Connect client has no RDDs: so the work travels inside a function over a column of numbers, and
its result comes back as a column of bytes.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final, TypeVar

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from srm.domain.offset_map.offset_ranges import OffsetRange
from srm.errors import ConflictError, SrmError, UnavailableError
from srm.kafka.wire.errors import kafka_errors, translate

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_R = TypeVar("_R")

TASKS_PER_CORE: Final = 4
"""Parts differ in size: with several for each core none waits long for the largest."""

_SCHEMA = "part bigint, done binary"
_ENOUGH_ROWS = 1 << 16


def spread(
    spark: SparkSession,
    items: Iterable[_T],
    function: Callable[[Iterable[_T]], Iterable[_R]],
    *,
    tasks: int | None = None,
) -> list[_R]:
    """Run a function over parts of the items, each in a Spark task; return results in their order.

    Items and results are picklable; what the function closes over is sent along. There are four
    ``tasks`` for each core by default. SrmError is that of the first part that failed.
    """
    every = list(items)
    if not every:
        return []
    wanted = tasks or TASKS_PER_CORE * cores(spark)
    parts = [pickle.dumps(part) for part in cut(every, wanted)]
    logger.info("%d items in %d Spark tasks", len(every), len(parts))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column(0).to_pylist():
                columns = [pa.array([part]), pa.array([_run(function, parts[part])], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, ["part", "done"])

    numbers = spark.range(0, len(parts), 1, len(parts))
    rows = numbers.mapInArrow(run, _SCHEMA).collect()
    results: list[_R] = []
    for row in sorted(rows, key=lambda row: row.part):
        done = pickle.loads(row.done)  # noqa: S301 - our own tasks wrote it
        if isinstance(done, SrmError):
            raise done
        results += done
    return results


def cores(spark: SparkSession) -> int:
    """Return how many tasks a session runs at a time by its default parallelism."""
    parts = spark.range(_ENOUGH_ROWS).select(F.spark_partition_id().alias("part"))
    return int(parts.agg(F.max("part").alias("last")).collect()[0].last) + 1


def cut(items: Sequence[_T], parts: int) -> list[Sequence[_T]]:
    """Cut into at most this number of non-empty stretches whose lengths differ by one at most."""
    count = min(parts, len(items))
    ends = [len(items) * part // count for part in range(count + 1)]
    return [items[start:end] for start, end in pairwise(ends)]


def _run(function: Callable[[Iterable[_T]], Iterable[_R]], part: bytes) -> bytes:
    try:
        return pickle.dumps(list(function(pickle.loads(part))))  # noqa: S301 - written by spread()
    except SrmError as error:
        # Raised in a task it would come back as text, in an error of Spark's.
        return pickle.dumps(error)


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
    """Give a consumer for :func:`read`, ``read_committed`` or not, and close it at the end."""
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

    The range's end must not be after the log's end (last stable offset), or the call waits for it.

    ConflictError: retention has removed a part of it. UnavailableError: nothing came in time.
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
