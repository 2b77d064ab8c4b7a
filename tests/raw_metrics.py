"""Random raw metrics of one flow, as slots and emissions of checkpoints could have told them."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from srm.domain.metrics import CheckpointMetric, Measured, RawMetric, encode_checkpoints, encode_raw


@st.composite
def raw_metrics(draw: st.DrawFn) -> RawMetric:
    """A raw metric of the first minutes, of one of two topics with two partitions each.

    Of two that a partition tells for one moment nobody knows which is newer, so the lag is a
    function of the time.
    """
    time_ms = draw(st.integers(1, 200_000))
    topic = draw(st.sampled_from(["pay", "orders"]))
    least, most = sorted(draw(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000))))
    count = draw(st.integers(0, 5))
    return RawMetric(
        time_ms=time_ms,
        interval_ms=draw(st.integers(1, 30_000)),
        source="P",
        target="B",
        topic=topic,
        remote_topic=f"P.{topic}",
        partition=draw(st.integers(0, 1)),
        records=draw(st.integers(0, 10_000)),
        bytes=draw(st.integers(0, 10**9)),
        latency_ms_min=least if count else 0,
        latency_ms_max=most if count else 0,
        latency_ms_sum=(least + most) * count if count else 0,
        latency_count=count,
        lag_records=time_ms * 7 % 1000,
    )


@st.composite
def checkpoint_metrics(draw: st.DrawFn) -> CheckpointMetric:
    """What an emission in the first minutes took; the reverse one is of a topic of its own."""
    topic, remote_topic = draw(st.sampled_from([("pay", "P.pay"), ("B.pay", "pay")]))
    least, most = sorted(draw(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000))))
    count = draw(st.integers(1, 5))
    return CheckpointMetric(
        time_ms=draw(st.integers(1, 200_000)),
        interval_ms=draw(st.integers(1, 30_000)),
        source="P",
        target="B",
        topic=topic,
        remote_topic=remote_topic,
        latency_ms_min=least,
        latency_ms_max=most,
        latency_ms_sum=(least + most) * count,
        latency_count=count,
    )


def measured() -> st.SearchStrategy[Measured]:
    """Anything that is told of the flow."""
    return st.one_of(raw_metrics(), checkpoint_metrics())


def values(metrics: Iterable[Measured]) -> list[bytes]:
    """The record values that say so, in the order of the metrics: a late one comes late."""
    return [
        value
        for metric in metrics
        for value in (
            encode_raw([metric]) if isinstance(metric, RawMetric) else encode_checkpoints([metric])
        )
    ]
