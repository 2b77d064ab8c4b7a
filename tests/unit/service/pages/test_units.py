"""Numbers and times are short, never wrong, and never two ways to say the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.service.pages import figures


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (figures.count(0), "0"),
        (figures.count(9_999), "9,999"),
        (figures.count(10_000), "10k"),
        (figures.count(48_210), "48.2k"),
        (figures.count(999_499), "999k"),
        (figures.count(999_500), "1M"),
        (figures.count(None), figures.NONE),
        (figures.rate(0), "0 B/s"),
        (figures.rate(116_040.5), "116 kB/s"),
        (figures.rate(1_840_000), "1.84 MB/s"),
        (figures.rate(None), figures.NONE),
        (figures.millis(0.4), "< 1 ms"),
        (figures.millis(37.4), "37 ms"),
        (figures.millis(1_500), "1.5 s"),
        (figures.duration(0.24), "0.2 s"),
        (figures.duration(18.4), "18 s"),
        (figures.duration(61), "1 min 1 s"),
        (figures.duration(3_600), "1 h"),
        (figures.duration(93_600), "1 d 2 h"),
        (figures.duration(None), figures.NONE),
        (figures.exact(1_234_567), "1,234,567"),
        (figures.exact(1.25), "1.250"),
        (figures.ago(1_000, 1_500), "now"),
        (figures.ago(0, 65_000), "1 min 5 s ago"),
        (figures.ago(0, 1_265_000), "21 min ago"),
        (figures.utc(0), "1970-01-01 00:00:00 UTC"),
        (figures.iso(1_000), "1970-01-01T00:00:01Z"),
    ],
)
def test_values_are_said_like_this(shown: str, wanted: str) -> None:
    assert shown == wanted


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_no_value(value: float) -> None:
    for said in (figures.count, figures.exact, figures.rate, figures.millis, figures.duration):
        assert said(value) == figures.NONE


@pytest.mark.parametrize("time_ms", [-(2**63), -1, 253_402_300_800_000, 2**63])
def test_a_moment_that_no_calendar_has_is_said_as_the_nearest_one(time_ms: int) -> None:
    nearest = "1970-01-01" if time_ms < 0 else "9999-12-31"

    assert figures.utc(time_ms).startswith(nearest)
    assert figures.iso(time_ms).startswith(nearest)


@given(st.floats(0, 1e18, allow_nan=False))
def test_a_rate_is_within_one_percent_of_what_it_says(value: float) -> None:
    number, unit = figures.rate(value).removesuffix("/s").split(" ")

    said = float(number) * 1000 ** ["B", "kB", "MB", "GB", "TB"].index(unit)

    assert abs(said - value) <= max(0.5, value * 0.01)


@given(st.integers(0, 10**10), st.integers(0, 10**10))
def test_what_lasts_longer_is_never_said_to_be_shorter(first: int, second: int) -> None:
    def said(milliseconds: int) -> int:
        sizes = {"d": 86_400, "h": 3600, "min": 60, "s": 1}
        words = figures.lasting(0, milliseconds).split()
        return sum(int(n) * sizes[unit] for n, unit in zip(words[::2], words[1::2], strict=True))

    shorter, longer = sorted((first, second))

    assert said(shorter) <= said(longer) <= longer // 1000
