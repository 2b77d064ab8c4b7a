"""Metrics aggregation without Spark, for raw records that one process can count in seconds.

The replicator can compute windows itself (:mod:`srm.replication.driver.windows`). The aggregation
then finds them stored and writes nothing, so it also serves as a check for missing windows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from srm.domain.metrics.metrics import WindowMetric
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.engine.control.compacted import ensure_compacted
from srm.engine.metrics.kept_windows import KeptWindows
from srm.engine.metrics.metrics import WindowBounds, WindowSpec, store
from srm.engine.ports import FlowContext
from srm.engine.status.silent_flows import Silence, tell_silence

logger = logging.getLogger(__name__)

Engine = Literal["plain", "spark"]

ReadRaw = Callable[[int], list[bytes] | None]
"""Returns the raw records since a time in epoch milliseconds, None if there are too many."""


@dataclass(frozen=True, slots=True)
class AggregationSummary:
    """Records read and windows written by one aggregation of a flow.

    Attributes:
        raw_records: measurements of one partition, or of one topic's checkpoints, in an interval.
        engine: ``spark`` or the loop of this module (``plain``); both compute the same windows.
        silence: why no replicator copies the flow, None where one does.
    """

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
    """Recompute the windows of the look-back and store those that are new or different.

    Args:
        context: the flow; its target holds both topics.
        read_raw: reads its raw records.
        spec: sizes; by default one minute, sliding by ten seconds, over the last 15 minutes.

    Returns:
        A summary, or None if there are too many raw records; nothing is written then.

    Raises:
        UnavailableError, AuthorizationError: from the target.
    """
    spec = spec or WindowSpec()
    now_ms = context.now_ms()
    windows = KeptWindows(context.config, spec)
    values = read_raw(windows.bounds(now_ms).first_start_ms)
    if values is None:
        return None
    windows.add(values, now_ms)
    silence, told = tell_silence(context, max(windows.told_ms, now_ms - spec.look_back_ms))
    windows.add(told, context.now_ms())
    wanted = settle_bounds(windows.bounds(now_ms), spec, silence)
    return keep(
        context,
        spec,
        windows.all(wanted),
        AggregationSummary(
            context.config.flow,
            wanted,
            windows.measured,
            windows.malformed,
            engine="plain",
            silence=silence,
        ),
    )


def settle_bounds(wanted: WindowBounds, spec: WindowSpec, silence: Silence | None) -> WindowBounds:
    """Return the windows to compute; of a flow without a replicator, up to the present slide.

    No raw records are expected for these windows; a replicator that adds some recomputes them.
    """
    if silence is None:
        return wanted
    return replace(wanted, last_end_ms=-(-silence.time_ms // spec.slide_ms) * spec.slide_ms)


def keep(
    context: FlowContext,
    spec: WindowSpec,
    found: Iterable[WindowMetric],
    summary: AggregationSummary,
) -> AggregationSummary:
    """Store computed windows and complete their summary.

    Raises:
        UnavailableError, AuthorizationError: from the target.
    """
    complete = [window for window in found if summary.bounds.hold(window)]
    ensure_compacted(
        context.target,
        internal_topics.METRICS_WINDOWS,
        replication_factor=context.config.internal_replication_factor,
    )
    keeping = spec.keeping(context.now_ms())
    written, expired = store(context.target, summary.flow, complete, keeping)
    if summary.malformed_records:
        topic = internal_topics.raw_metrics(summary.flow.source)
        logger.warning("%s holds %d records that are not metrics", topic, summary.malformed_records)
    return replace(summary, windows=len(complete), written=written, expired=expired)
