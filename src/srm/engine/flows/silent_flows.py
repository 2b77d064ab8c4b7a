"""The lag of a flow that nobody copies: whoever would tell it is down.

Slots tell the lag of what they copy. Once none is alive, or none may copy, their raw records cease
while the source goes on; then this asks the source and writes the raw records in their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from srm.domain.metrics.metrics import RawMetric, encode_raw
from srm.domain.metrics.windows import LONGEST_INTERVAL_MS
from srm.engine.flows.observing import FlowState, observe
from srm.engine.metrics.raw_metrics import tell
from srm.engine.ports import FlowContext


@dataclass(frozen=True, slots=True)
class Silence:
    """Why nobody copies a flow, and how far behind that leaves it at ``time_ms``.

    ``lag_records`` is None where the source does not answer: it is not known then, and nothing is
    told. ``source_heard_ms`` is when the source last answered a slot, 0: never or not known;
    ``driver_age_ms`` how long the driver has said nothing, None: there never was one.
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
    """Write the lag of a flow that nobody copies, as raw metrics in which nothing was copied.

    Args:
        context: the flow.
        told_ms: up to when its lag was told before; None: not known. What is told now is of the
            time since then, or since nobody copies it: so that no time without a number is left,
            which would look like one without lag.

    Returns:
        What was found, None for a flow that is copied or switched off; and the records written.

    Raises:
        SrmError: the target does not answer.
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
    """Whether nobody copies a flow that is switched on, so that nobody tells its lag."""
    status = view.status
    if not status.enabled:
        return False
    ended = status.driver is not None and status.driver.ended
    return status.pause is not None or ended or not any(slot.alive for slot in status.slots)


def _interval_ms(context: FlowContext, view: FlowState, told_ms: int | None) -> int:
    """Return of how long a time the lag is told that was found now."""
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
    """Give a raw metric for each partition that lags; none where the source does not answer."""
    if view.status.source_error:
        return
    config = context.config
    for name, partitions in sorted(view.partitions.items()):
        remote_topic = config.policy.format_remote_topic(config.flow.source, name)
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
