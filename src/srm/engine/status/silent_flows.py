"""Lag of a flow whose replicator is down or paused.

Slots report the lag of the partitions that they copy. When no slot is alive or may copy, their raw
records cease while the source grows. This module then queries the source and writes raw records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from srm.domain.metrics.metrics import RawMetric, encode_raw
from srm.domain.metrics.windows import LONGEST_INTERVAL_MS
from srm.engine.flows.raw_metrics import tell
from srm.engine.ports import FlowContext
from srm.engine.status.observing import FlowState, observe


@dataclass(frozen=True, slots=True)
class Silence:
    """Lag of a flow at ``time_ms``, and why no slot copies it.

    ``lag_records`` is None while the source does not answer; no lag is written then.
    ``source_heard_ms`` is when the source last answered a slot, 0 if never or unknown.
    ``driver_age_ms`` is the age of the driver's last heartbeat, None without one.
    """

    time_ms: int
    reason: str
    partitions: int
    lag_records: int | None
    source_heard_ms: int
    driver_age_ms: int | None


def tell_silence(
    context: FlowContext, told_ms: int | None = None
) -> tuple[Silence | None, list[bytes]]:
    """Write the lag of a flow that no slot copies, as raw metrics with 0 copied records.

    ``told_ms``: end of the last reported lag, None if unknown. The new lag covers the time since
    then, or since the replicator stopped; a gap would look like a time without lag.

    Returns:
        The lag, None for a flow that is copied or switched off, and the written records.
    """
    view = observe(context)
    if not is_silent(view):
        return None, []
    metrics = list(lags(context, view, _interval_ms(context, view, told_ms)))
    values = encode_raw(metrics)
    if not tell(context, "silence", values):
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
    """Return whether an enabled flow is paused or without live slots, so without reported lag."""
    status = view.status
    if not status.enabled:
        return False
    ended = status.driver is not None and status.driver.ended
    return status.pause is not None or ended or not any(slot.alive for slot in status.slots)


def _interval_ms(context: FlowContext, view: FlowState, told_ms: int | None) -> int:
    """Return the time that the current lag covers."""
    status = view.status
    if told_ms is None:
        return context.config.metrics_interval // timedelta(milliseconds=1)
    if status.pause is not None:
        silent_ms = status.pause.time_ms
    else:
        silent_ms = max((status.time_ms - slot.age_ms for slot in status.slots), default=0)
    since_ms = max(silent_ms, told_ms, status.time_ms - LONGEST_INTERVAL_MS)
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
                    records=0,
                    bytes=0,
                    latency_ms_min=0,
                    latency_ms_max=0,
                    latency_ms_sum=0,
                    latency_count=0,
                    lag_records=partition.lag,
                )
