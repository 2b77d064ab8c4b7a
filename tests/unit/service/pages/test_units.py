"""Numbers and times are short, never wrong, and never two ways to say the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.service.pages import units


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (units.count(0), "0"),
        (units.count(9_999), "9,999"),
        (units.count(10_000), "10k"),
        (units.count(48_210), "48.2k"),
        (units.count(999_499), "999k"),
        (units.count(999_500), "1M"),
        (units.count(None), units.NONE),
        (units.rate(0), "0 B/s"),
        (units.rate(116_040.5), "116 kB/s"),
        (units.rate(1_840_000), "1.84 MB/s"),
        (units.rate(None), units.NONE),
        (units.millis(0.4), "< 1 ms"),
        (units.millis(37.4), "37 ms"),
        (units.millis(1_500), "1.5 s"),
        (units.duration(0.24), "0.2 s"),
        (units.duration(18.4), "18 s"),
        (units.duration(61), "1 min 1 s"),
        (units.duration(3_600), "1 h"),
        (units.duration(93_600), "1 d 2 h"),
        (units.duration(None), units.NONE),
        (units.exact(1_234_567), "1,234,567"),
        (units.exact(1.25), "1.250"),
        (units.ago(1_000, 1_500), "now"),
        (units.ago(0, 65_000), "1 min 5 s ago"),
        (units.ago(0, 1_265_000), "21 min ago"),
        (units.utc(0), "1970-01-01 00:00:00 UTC"),
        (units.iso(1_000), "1970-01-01T00:00:01Z"),
    ],
)
def test_values_are_said_like_this(shown: str, wanted: str) -> None:
    assert shown == wanted


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_no_value(value: float) -> None:
    for said in (units.count, units.exact, units.rate, units.millis, units.duration):
        assert said(value) == units.NONE


@pytest.mark.parametrize("time_ms", [-(2**63), -1, 253_402_300_800_000, 2**63])
def test_a_moment_that_no_calendar_has_is_said_as_the_nearest_one(time_ms: int) -> None:
    nearest = "1970-01-01" if time_ms < 0 else "9999-12-31"

    assert units.utc(time_ms).startswith(nearest)
    assert units.iso(time_ms).startswith(nearest)


@given(st.floats(0, 1e18, allow_nan=False))
def test_a_rate_is_within_one_percent_of_what_it_says(value: float) -> None:
    number, unit = units.rate(value).removesuffix("/s").split(" ")

    said = float(number) * 1000 ** ["B", "kB", "MB", "GB", "TB"].index(unit)

    assert abs(said - value) <= max(0.5, value * 0.01)


@given(st.integers(0, 10**10), st.integers(0, 10**10))
def test_what_lasts_longer_is_never_said_to_be_shorter(first: int, second: int) -> None:
    def said(milliseconds: int) -> int:
        sizes = {"d": 86_400, "h": 3600, "min": 60, "s": 1}
        words = units.lasting(0, milliseconds).split()
        return sum(int(n) * sizes[unit] for n, unit in zip(words[::2], words[1::2], strict=True))

    shorter, longer = sorted((first, second))

    assert said(shorter) <= said(longer) <= longer // 1000
