"""The quota spreads bytes over time and never lets more through than its rate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.seconds import Seconds

from srm.replication.copy.fetching import Quota


def test_without_a_limit_nothing_waits() -> None:
    quota = Quota(None)
    quota.set_share(0.5)

    assert quota.spend(1 << 40) == 0.0
    assert quota.fetch_bytes(1 << 20) == 1 << 20


@given(st.lists(st.tuples(st.integers(1, 100_000), st.floats(0, 0.5)), min_size=1, max_size=50))
def test_over_any_time_no_more_than_the_rate_and_one_burst_goes_through(
    spent: list[tuple[int, float]],
) -> None:
    time, rate = Seconds(), 100_000
    quota = Quota(rate, time)
    began, total = time.now, 0
    for count, idle in spent:
        total += count
        time.now += quota.spend(count)
        assert total <= rate * (time.now - began + 0.1) + 1
        time.now += idle


def test_a_share_slows_down_accordingly() -> None:
    time = Seconds()
    whole, half = Quota(1000, time), Quota(1000, time)
    half.set_share(0.5)

    assert round(whole.spend(1000), 3) == 0.9
    assert round(half.spend(1000), 3) == 1.9
