"""Generations of moves between clusters that do not know of one another's moves."""

from __future__ import annotations

from srm.domain.moves.routing import ERA, Route, next_generation, order_number

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


def test_an_order_to_a_third_cluster_is_above_all_of_two_that_died_with_their_routes() -> None:
    """A to B unplanned, back, and there again; then B dies, and C has no route of these clients.

    A client that only obeys a webhook ignores an order below the newest that it has obeyed.
    """
    there = next_generation([], unplanned_ms=NOW_MS)
    back = next_generation([Route(there, "B", "go", decided=True)])
    again = next_generation([Route(back, "A", "go", decided=True)])

    onward = next_generation([], unplanned_ms=NOW_MS + HOUR_MS)

    assert there < back < again < onward
    assert order_number(onward, "hold") > order_number(again, "go")
    assert onward % ERA == 0 < again % ERA


def test_a_clock_that_is_behind_takes_no_generation_below_one_that_is_known() -> None:
    there = next_generation([], unplanned_ms=NOW_MS)

    onward = next_generation([Route(there + 7, "B", "go")], unplanned_ms=NOW_MS - 24 * HOUR_MS)

    assert onward == there + ERA


def test_json_keeps_each_order_of_the_next_centuries() -> None:
    centuries_ms = 9_999_999_999_000

    assert order_number(next_generation([], unplanned_ms=centuries_ms), "go") < 1 << 53
