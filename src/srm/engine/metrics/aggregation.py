"""Metrics aggregation: raw records of a flow in, windows on its target out, safe to repeat.

Records are counted here, or in parts by Spark tasks (:mod:`srm.spark.jobs`). The
replicator can compute windows itself (:mod:`srm.replication.driver.duties`). The aggregation then
finds them stored and writes nothing, so it also serves as a check for missing windows.

Slots report the lag of the partitions that they copy. When no slot is alive or may copy, their raw
records cease while the source grows. This module then queries the source and writes raw records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal

from srm.domain.metrics import LONGEST_INTERVAL_MS, RawMetric, encode_raw
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.engine.control.control_topics import ensure_compacted
from srm.engine.flows.target_topics import write_metrics
from srm.engine.metrics.metrics import KeptWindows, WindowBounds, WindowSpec, store
from srm.engine.ports import FlowContext
from srm.engine.status.observing import FlowState, observe

logger = logging.getLogger(__name__)

Engine = Literal["plain", "spark"]

ReadRaw = Callable[[int], list[bytes] | None]
"""Returns the raw records since a time in epoch milliseconds, None if there are too many."""
Count = Callable[[KeptWindows, int], bool]
"""Adds the raw records of the look-back until now (epoch ms); False if there are too many."""


@dataclass(frozen=True, slots=True)
class AggregationSummary:
    """Records read and windows written by an aggregation; silence if no slot copies."""

    flow: Flow
    bounds: WindowBounds
    raw_records: int
    malformed_records: int
    windows: int = 0
    written: int = 0
    expired: int = 0
    engine: Engine = "spark"
    silence: Silence | None = None


def aggregate(
    context: FlowContext, read_raw: ReadRaw, spec: WindowSpec | None = None
) -> AggregationSummary | None:
    """Recompute the windows of the look-back, and store those that are new or different.

    None if there are too many raw records; nothing is written then.
    """

    def count(windows: KeptWindows, now_ms: int) -> bool:
        values = read_raw(windows.bounds(now_ms).first_start_ms)
        windows.add(values or (), now_ms)
        return values is not None

    return aggregate_by(context, count, spec or WindowSpec(), "plain")


def aggregate_by(
    context: FlowContext, count: Count, spec: WindowSpec, engine: Engine
) -> AggregationSummary | None:
    config, target, now_ms = context.config, context.target, context.now_ms()
    windows = KeptWindows(config, spec)
    if not count(windows, now_ms):
        return None
    silence, reported = write_silence(context, max(windows.reported_ms, now_ms - spec.look_back_ms))
    windows.add(reported, context.now_ms())
    wanted = windows.bounds(now_ms)
    if silence is not None:
        # No raw records are expected, so all windows up to the present slide are complete.
        end_ms = -(-silence.time_ms // spec.slide_ms) * spec.slide_ms
        wanted = replace(wanted, last_end_ms=end_ms)
    complete = windows.all(wanted)
    factor = config.internal_replication_factor
    ensure_compacted(target, internal_topics.METRICS_WINDOWS, replication_factor=factor)
    written, expired = store(target, config.flow, complete, spec.keeping(context.now_ms()))
    if windows.malformed:
        topic = internal_topics.raw_metrics(config.flow.source)
        logger.warning("%s holds %d records that are not metrics", topic, windows.malformed)
    return AggregationSummary(
        *(config.flow, wanted, windows.measured, windows.malformed, len(complete)),
        *(written, expired, engine, silence),
    )


@dataclass(frozen=True, slots=True)
class Silence:
    """Lag of a flow at ``time_ms``, and why no slot copies it; None while the source is silent.

    ``source_heard_ms``: its last answer to a slot (0: unknown). ``driver_age_ms``: of the last
    heartbeat.
    """

    time_ms: int
    reason: str
    partitions: int
    lag_records: int | None
    source_heard_ms: int
    driver_age_ms: int | None


def write_silence(
    context: FlowContext, reported_ms: int | None = None
) -> tuple[Silence | None, list[bytes]]:
    """Write and return the lag of a flow that no slot copies, as raw metrics without records.

    It covers the time since the last lag (``reported_ms``): a gap would look like no lag.
    """
    view = observe(context)
    if not is_silent(view):
        return None, []
    metrics = list(lags(context, view, _interval_ms(context, view, reported_ms)))
    values = encode_raw(metrics)
    if not write_metrics(context, "silence", values):
        values = []
    driver = view.status.driver
    silence = Silence(
        time_ms=view.status.time_ms,
        reason=view.health.reasons[0].text if view.health.reasons else "",
        partitions=len(metrics),
        lag_records=None
        if view.status.source_error
        else sum(metric.lag_records for metric in metrics),
        source_heard_ms=view.status.heard_ms,
        driver_age_ms=driver.age_ms if driver is not None else None,
    )
    return silence, values


def is_silent(view: FlowState) -> bool:
    status = view.status
    if not status.enabled:
        return False
    ended = status.driver is not None and status.driver.ended
    return status.pause is not None or ended or not any(slot.alive for slot in status.slots)


def _interval_ms(context: FlowContext, view: FlowState, reported_ms: int | None) -> int:
    status = view.status
    if reported_ms is None:
        return context.config.metrics_interval // timedelta(milliseconds=1)
    if status.pause is not None:
        silent_ms = status.pause.time_ms
    else:
        silent_ms = max((status.time_ms - slot.age_ms for slot in status.slots), default=0)
    since_ms = max(silent_ms, reported_ms, status.time_ms - LONGEST_INTERVAL_MS)
    return max(1, status.time_ms - since_ms)


def lags(context: FlowContext, view: FlowState, interval_ms: int) -> Iterator[RawMetric]:
    """Yield a raw metric for each partition with lag; none while the source does not answer."""
    if view.status.source_error:
        return
    config, names = context.config, context.config.names
    for name, partitions in sorted(view.partitions.items()):
        remote_topic = names.remote(name)
        for partition in partitions:
            if partition.lag > 0:
                yield RawMetric(
                    time_ms=view.status.time_ms,
                    interval_ms=interval_ms,
                    source=config.flow.source,
                    target=config.flow.target,
                    topic=name,
                    remote_topic=remote_topic,
                    partition=partition.partition,
                    lag_records=partition.lag,
                )
