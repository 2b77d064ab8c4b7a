"""Numbers with their nouns."""

from __future__ import annotations

import pytest

from srm.domain.text.amount import ago, amount, duration


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 records"), (1, "1 record"), (1200, "1,200 records")]
)
def test_only_one_is_singular_and_thousands_are_grouped(count: int, said: str) -> None:
    assert amount(count, "record") == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0.4 s"), (41.2, "41 s"), (200, "3 min 20 s"), (7200, "2 h"), (854_150, "9 d 21 h")],
)
def test_a_duration_is_told_by_its_two_largest_units(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("age_ms", "said"),
    [(-5, "0 s ago"), (400, "0 s ago"), (3_200, "3 s ago"), (382_000, "6 min 22 s ago")],
)
def test_an_age_is_told_in_whole_seconds(age_ms: float, said: str) -> None:
    assert ago(age_ms) == said
