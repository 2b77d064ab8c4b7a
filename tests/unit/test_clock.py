"""Rhythms that keep time together."""

from __future__ import annotations

import pytest

from srm import clock


@pytest.mark.parametrize(
    ("now", "wait_s"), [(1000.0, 1.0), (1000.3, 0.7), (1000.89, 0.11), (1000.95, 1.05)]
)
def test_what_happens_each_second_happens_at_the_same_moment(now: float, wait_s: float) -> None:
    """A timer that is a little early does not make it happen twice."""
    with clock.using(lambda: now):
        assert clock.until_next(1.0) == pytest.approx(wait_s)
