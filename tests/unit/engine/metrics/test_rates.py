"""How long copying still takes: one estimate, for srm why and for the pages."""

from __future__ import annotations

from srm.engine.metrics.metrics import rate_of, seconds_to_go

NOW = 1_800_000_000_000
MIN = 60_000


def test_the_rate_of_late_is_that_of_all_topics_together() -> None:
    windows = [(NOW - 2 * MIN, NOW - MIN, 600), (NOW - 2 * MIN, NOW - MIN, 60)]

    assert rate_of(windows, NOW) == 11
    assert seconds_to_go(110, rate_of(windows, NOW)) == 10


def test_what_arrives_now_is_no_measure_of_what_copying_can_do_but_its_best_of_late_is() -> None:
    windows = [(NOW - MIN, NOW, 60), (NOW - 8 * MIN, NOW - 7 * MIN, 12_000)]

    assert rate_of(windows, NOW) == 200


def test_what_was_measured_long_ago_or_holds_nothing_is_no_rate() -> None:
    windows = [(NOW - 17 * MIN, NOW - 16 * MIN, 600), (NOW - MIN, NOW, 0)]

    assert rate_of(windows, NOW) is None
    assert rate_of([], NOW) is None
    assert seconds_to_go(5, None) is None
    assert seconds_to_go(0, None) == 0
