"""Random raw metrics of one flow, as slots could have told them."""

from __future__ import annotations

from hypothesis import strategies as st

from srm.domain.metrics import RawMetric


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
