"""Jobs spread over Spark tasks: metrics, checkpoints, group sync; their options and output.

A Connect client has no RDDs: so the work travels inside a function over a column of numbers, and
its result comes back as a column of bytes.
"""

from __future__ import annotations

import argparse
import logging
import pickle
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, TypeVar

import confluent_kafka as confluent
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from srm import logs, telemetry
from srm.config.loader import load_config
from srm.config.model import Config
from srm.domain.groups.proof import merge_proofs
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.runs import OffsetRange, split_ranges
from srm.domain.text.documents import encode
from srm.engine import emission
from srm.engine.cluster_ports import Cluster
from srm.engine.groups.checkpoints import (
    CheckpointSummary,
    emit,
    forget_commits,
    proof_share,
    selected_groups,
)
from srm.engine.groups.group_sync import GroupSyncSummary, sync
from srm.engine.groups.proving import keep_proof
from srm.engine.metrics.aggregation import AggregationSummary, aggregate_by
from srm.engine.metrics.metrics import KeptWindows, WindowSpec
from srm.engine.ports import FlowContext
from srm.errors import ConflictError, SrmError, UnavailableError
from srm.kafka.admin.clients import connection
from srm.kafka.wire.errors import kafka_errors, translate
from srm.spark.session import file_settings, spark_session
from srm.wiring import open_flow

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
    """Run a function over parts of the items, each in a Spark task; return results in order."""
    every = list(items)
    if not every:
        return []
    parts = [pickle.dumps(part) for part in cut(every, tasks or TASKS_PER_CORE * cores(spark))]
    logger.info("%d items in %d Spark tasks", len(every), len(parts))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column(0).to_pylist():
                columns = [pa.array([part]), pa.array([_run(function, parts[part])], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, ["part", "done"])

    rows = spark.range(0, len(parts), 1, len(parts)).mapInArrow(run, _SCHEMA).collect()
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
    settings = {**connection(properties), **_READER_SETTINGS, "isolation.level": isolation}
    with kafka_errors("open a range reader"):
        consumer = Consumer(settings)
    with closing(consumer):
        yield consumer


def read(
    consumer: Consumer, wanted: OffsetRange, silence_seconds: float = SILENCE_SECONDS
) -> Iterator[list[Message]]:
    """Read the records of a range, in order, as lists; its end is not after the last stable offset.

    ConflictError: retention has removed a part of it. UnavailableError: nothing came in time.
    """
    if wanted.size == 0:
        return
    with kafka_errors(f"read {wanted}"):
        consumer.assign([confluent.TopicPartition(wanted.topic, wanted.partition, wanted.start)])
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
            continue  # left over from the range that this consumer read before
        if error is None or error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's public constant
            if message.offset() >= wanted.end:
                return records, True
            if error is None:
                records.append(message)
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001
            raise ConflictError(f"{wanted} is no longer in the log (retention?): plan it again")
        else:
            raise translate(error, f"read {wanted}")
    return records, bool(records) and records[-1].offset() == wanted.end - 1


_SPANS: Final = {
    "srm-checkpoints": "checkpoints.emit",
    "srm-group-sync": "groups.sync",
    "srm-metrics": "metrics.aggregate",
    "srm-verification": "verify",
}
"""Span names by job: the same as those of the corresponding commands."""


JobResult = tuple[object, SrmError | None]
"""Summary of one flow, to print, and its failure if there was one."""

JobWork = Callable[[SparkSession, Config, Flow], JobResult]


def parser(description: str | None) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--config", help="properties file; else $SRM_CONFIG, ./srm.properties")
    options.add_argument(
        "--flow", action="append", type=Flow.parse, metavar="A->B", help="default: all enabled"
    )
    options.add_argument(
        "--remote",
        metavar="sc://HOST:PORT",
        help="Spark Connect server, where spark-submit does not start this; else $SPARK_REMOTE",
    )
    return options


def group_failure(errors: Mapping[str, str]) -> SrmError | None:
    """Return the error of a summary in which groups failed: worth another attempt."""
    if not errors:
        return None
    first = min(errors)
    return UnavailableError(f"{len(errors)} groups failed, first {first!r}: {errors[first]}")


def run_job(name: str, options: argparse.Namespace, work: JobWork) -> int:
    """Run a job for each flow, printing JSON lines; return the first failure's exit code."""
    logs.set_up(srm=logging.INFO)
    failures: list[SrmError] = []
    try:
        config = load_config(options.config)
        conf = file_settings(config.spark)
        with spark_session(name, conf=conf, remote=options.remote) as spark:
            for flow in options.flow or config.flows:
                failures += _run_flow(spark, config, flow, work, _SPANS.get(name, name))
    except SrmError as error:
        failures.append(error)
    for failure in failures:
        sys.stderr.write(f"srm: {failure}\n")
    return failures[0].exit_code if failures else 0


def _run_flow(
    spark: SparkSession, config: Config, flow: Flow, work: JobWork, span: str
) -> list[SrmError]:
    try:
        with telemetry.span(span, flow=str(flow), engine="spark") as opened:
            summary, failure = work(spark, config, flow)
            opened.result(summary)
            opened.note(failure=failure)
    except SrmError as error:
        return [error]
    sys.stdout.write(encode(summary).decode() + "\n")
    sys.stdout.flush()
    return [] if failure is None else [failure]


RANGE_SIZE: Final = 100_000


def aggregate(
    spark: SparkSession, context: FlowContext, target: Mapping[str, str], sizes: WindowSpec
) -> AggregationSummary:
    config = context.config
    topic = internal_topics.raw_metrics(config.flow.source)

    def count(windows: KeptWindows, now_ms: int) -> bool:
        def count_part(ranges: Iterable[OffsetRange]) -> Iterator[KeptWindows]:
            counted = KeptWindows(config, sizes)
            with reader(target, "read_uncommitted") as consumer:
                for messages in (found for each in ranges for found in read(consumer, each)):
                    counted.add((value for m in messages if (value := m.value())), now_ms)
            yield counted

        ranges = _plan_ranges(context.target, topic, windows.bounds(now_ms).first_start_ms)
        logger.info("aggregating %s of %s in %d ranges", topic, config.flow, len(ranges))
        for counted in spread(spark, ranges, count_part):
            windows.merge(counted)
        return True

    found = aggregate_by(context, count, sizes, "spark")
    assert found is not None  # noqa: S101 -- Spark counts any number
    return found


def _plan_ranges(cluster: Cluster, topic: str, since_ms: int) -> tuple[OffsetRange, ...]:
    partitions = range(cluster.partition_counts().get(topic, 0))
    times = {TopicPartition(topic, number): since_ms for number in partitions}
    starts, ends = cluster.offsets_at(times), cluster.high_watermarks(times)
    # A partition without a start has no record that is so young.
    ranges = (OffsetRange(*place, starts[place], ends[place]) for place in starts if place in ends)
    return split_ranges(ranges, RANGE_SIZE)


_S = TypeVar("_S")
_Summary = TypeVar("_Summary", CheckpointSummary, GroupSyncSummary)
_GroupCall = Callable[[FlowContext, Collection[str]], _S]
_TASKS_PER_CORE = 2
_GROUPS_PER_TASK = 20


def emit_spread(spark: SparkSession, config: Config, flow: Flow) -> CheckpointSummary:
    """Write a flow's checkpoints, as :func:`srm.engine.emission.emit` does."""
    with open_flow(config, flow) as context:
        # Without groups: says whether emission is on, and carries flow and time.
        start = emission.emit(context, ())
        if start.skipped:
            return start
        groups = selected_groups(context, remember=True)
        share, total = proof_share(context), len(groups)

    def call(context: FlowContext, part: Collection[str]) -> CheckpointSummary:
        return emit(context, part, share=share.of(len(part), total))

    found = merge_checkpoints(start, *over_groups(spark, config, flow, groups, call))
    if found.proof is not None:
        with open_flow(config, flow) as context:
            rows = context.target.compacted_topic(context.config.checkpoints_topic).read_stamped()
            unread = forget_commits(context, found.outcomes, found.errors, rows)
            keep_proof(context, replace(found.proof, unread=(*found.proof.unread, *unread)))
    return found


def sync_spread(spark: SparkSession, config: Config, flow: Flow) -> GroupSyncSummary:
    """Write offsets of idle groups, as :func:`srm.engine.groups.group_sync.sync` does."""
    with open_flow(config, flow) as context:
        # Without groups: says whether the sync is on, and carries flow and time.
        start = sync(context, ())
        if start.skipped:
            return start
        groups = selected_groups(context, remember=True)
    return merge_syncs(start, *over_groups(spark, config, flow, groups, sync))


def merge_checkpoints(
    start: CheckpointSummary, parts: Collection[CheckpointSummary], errors: Mapping[str, str]
) -> CheckpointSummary:
    merged = _merge(start, parts, errors, ("groups", "written", "unchanged"), "states")
    outcomes = (outcome for part in parts for outcome in part.outcomes)
    merged = replace(merged, outcomes=tuple(sorted(outcomes, key=lambda o: (o.group, o.upstream))))
    if start.proof is None:
        return merged
    proof = merge_proofs([part.proof for part in parts if part.proof is not None], start.proof)
    return replace(merged, proof=replace(proof, unread=tuple(sorted({*proof.unread, *errors}))))


def merge_syncs(
    start: GroupSyncSummary, parts: Collection[GroupSyncSummary], errors: Mapping[str, str]
) -> GroupSyncSummary:
    merged = _merge(start, parts, errors, ("applied",), "actions")
    decisions = (decision for part in parts for decision in part.decisions)
    by_group = sorted(decisions, key=lambda d: (d.group, d.partition))
    return replace(merged, decisions=tuple(by_group))


def _merge(
    start: _Summary,
    parts: Collection[_Summary],
    errors: Mapping[str, str],
    sums: Iterable[str],
    counts: str,
) -> _Summary:
    found: dict[str, Any] = {name: sum(getattr(part, name) for part in parts) for name in sums}
    by_name = Counter[str]()
    for part in parts:
        by_name.update(getattr(part, counts))
        errors = {**errors, **part.errors}
    return replace(start, **found | {counts: dict(sorted(by_name.items()))}, errors=dict(errors))


def deal(groups: Collection[str], hands: int) -> list[tuple[str, ...]]:
    """Deal groups out like cards, so that neighbours by name (often alike in size) are spread."""
    ordered = sorted(groups)
    return [tuple(ordered[hand::hands]) for hand in range(min(hands, len(ordered)))]


def over_groups(
    spark: SparkSession, config: Config, flow: Flow, groups: Collection[str], call: _GroupCall[_S]
) -> tuple[list[_S], dict[str, str]]:
    """Run an engine call on the groups in Spark tasks: results, and errors by group."""
    if not groups:
        return [], {}
    wanted = max(1, len(groups) // _GROUPS_PER_TASK)
    hands = deal(groups, min(_TASKS_PER_CORE * cores(spark), wanted))
    logger.info("%s: %d groups in %d Spark tasks", flow, len(groups), len(hands))

    def run(part: Iterable[tuple[str, ...]]) -> Iterator[tuple[_S | None, dict[str, str]]]:
        for hand in part:
            yield run_hand(config, flow, hand, call)

    done = spread(spark, hands, run, tasks=len(hands))
    errors = {group: reason for _, failed in done for group, reason in failed.items()}
    return [result for result, _ in done if result is not None], errors


def run_hand(
    config: Config, flow: Flow, groups: tuple[str, ...], call: _GroupCall[_S]
) -> tuple[_S | None, dict[str, str]]:
    """Run the call on one task's groups: its result, or the reason for each group."""
    try:
        with open_flow(config, flow) as context:
            return call(context, groups), {}
    except SrmError as error:
        return None, dict.fromkeys(groups, str(error))
