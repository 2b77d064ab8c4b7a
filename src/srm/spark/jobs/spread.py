"""Python work spread over Spark tasks, by the one way that a Spark Connect session has too.

RDDs would do, but a Connect client has none: so the work travels inside a function over a column of
numbers, and what it gives comes back as a column of bytes.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from srm.errors import SrmError

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
    """Run a function over parts of the items, each in a Spark task, and collect what it gives.

    ``items``: what to work on; must be picklable.
    ``function``: gets the items of one task, in order, and gives picklable results. What it closes
    over is sent along with it.
    ``tasks``: how many parts; without it four for each core. Never more than items.

    Returns:
        The results in the order of the items.

    Raises:
        SrmError: what the function raised on the first part that failed.
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
