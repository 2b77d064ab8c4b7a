"""When clients leave, wait and open, and what they say about it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.client.routing import Announcement, Moment, is_given_up, next_step, same_order
from srm.domain.moves.routing import ERA, Route

HOLD, GO = Route(1, "P", "hold"), Route(1, "B", "go")


@pytest.mark.parametrize(
    ("works_on", "route", "busy", "step"),
    [
        ("P", Route(0, "P", "go"), False, "stay"),
        ("P", HOLD, False, "leave"),
        ("P", HOLD, True, "finish"),
        ("P", GO, False, "leave"),
        ("P", GO, True, "finish"),
        ("B", GO, True, "stay"),
        (None, HOLD, False, "hold"),
        (None, GO, False, "open"),
    ],
)
def test_a_route_says_what_to_do(
    works_on: str | None, route: Route, *, busy: bool, step: str
) -> None:
    assert next_step(works_on, route, busy=busy) == step


@given(
    st.sampled_from(["P", "B", None]), st.sampled_from(["P", "B"]), st.sampled_from(["go", "hold"])
)
def test_following_a_route_ends_where_it_says(works_on, cluster, state):
    route = Route(3, cluster, state)
    for _ in range(2):
        step = next_step(works_on, route)
        works_on = {"leave": None, "open": cluster}.get(step, works_on)

    assert works_on == (cluster if state == "go" else None)


@pytest.mark.parametrize(
    ("works_on", "followed", "route", "given_up"),
    [
        ("P", Route(0, "P", "go"), Route(ERA, "P", "hold"), True),
        ("P", None, Route(ERA, "B", "go", decided=True), True),
        # It has lapsed, and was renewed after all.
        ("P", Route(ERA, "P", "hold").expire(), Route(ERA, "P", "hold", beat=2), True),
        ("P", Route(ERA, "P", "go"), Route(2 * ERA, "P", "hold"), True),
        ("B", Route(ERA, "B", "go", decided=True), Route(ERA + 1, "B", "hold"), False),
        ("B", Route(0, "B", "go"), Route(ERA, "P", "hold"), False),
        ("P", Route(0, "P", "go"), Route(1, "B", "go", decided=True), False),
        # The unplanned move from P was never heard of: B could not be read at the time.
        ("P", Route(3, "P", "go"), Route(ERA + 1, "B", "hold"), True),
        ("P", Route(3, "P", "go"), Route(ERA + 1, "P", "hold"), False),
    ],
)
def test_a_cluster_is_given_up_by_an_unplanned_move_since_the_client_came_there(
    works_on: str, followed: Route | None, route: Route, *, given_up: bool
) -> None:
    assert is_given_up(works_on, followed, route) == given_up


def test_a_hold_that_is_only_renewed_asks_for_nothing_new() -> None:
    assert same_order(HOLD, replace(HOLD, time_ms=99))
    assert not same_order(HOLD, replace(HOLD, state="go"))
    assert not same_order(None, HOLD)


def moment(seconds: float) -> Moment:
    return Moment(1_000_000 + round(seconds * 1000), seconds)


def test_an_announcement_says_how_long_ago_each_state_was_reached() -> None:
    said = Announcement("group:g", "c")
    assert said.ack(moment(0)) is None
    said.reach(GO, "resumed", moment(1), {"T-0": 5})
    said.reach(GO, "processed", moment(3))

    ack = said.ack(moment(10))

    assert ack is not None
    assert (ack.state, ack.ages_ms) == ("processed", {"resumed": 9000, "processed": 7000})
    assert ack.time_ms == 1_003_000
    assert ack.positions == {"T-0": 5}
    assert (ack.kind, bool(ack.host)) == ("consumer", True)


def test_positions_add_up_over_the_assignments_of_a_generation() -> None:
    """A cooperative member gets its partitions in several assignments."""
    said = Announcement("group:g", "c")
    said.reach(GO, "resumed", moment(1), {"T-0": 5})
    said.reach(GO, "resumed", moment(2), {"T-0": 9, "T-1": 7})
    ack = said.ack(moment(2))
    assert ack is not None
    assert ack.positions == {"T-0": 5, "T-1": 7}

    said.reach(Route(2, "P", "go"), "resumed", moment(3))
    ack = said.ack(moment(3))
    assert ack is not None
    assert ack.positions == {}


def test_another_assignment_does_not_undo_what_was_processed() -> None:
    said = Announcement("group:g", "c")
    said.reach(GO, "processed", moment(1))
    said.reach(GO, "resumed", moment(2), {"T-1": 4})

    ack = said.ack(moment(3))
    assert ack is not None
    assert (ack.state, ack.time_ms, ack.positions) == ("processed", 1_001_000, {"T-1": 4})


def test_a_hold_makes_what_was_reached_before_void() -> None:
    said = Announcement("group:g", "c")
    said.reach(replace(HOLD, state="go"), "processed", moment(1))
    said.reach(HOLD, "held", moment(2))

    assert not said.has_reached("processed")
    ack = said.ack(moment(2))
    assert ack is not None
    assert ack.ages_ms == {"held": 0}


def test_losses_add_up_until_the_next_stay_is_left() -> None:
    said = Announcement("group:g", "c")
    said.reach(GO, "resumed", moment(1))
    said.lose({"T-0": 2})
    said.lose({"T-0": 1, "T-1": 1})
    ack = said.ack(moment(2))
    assert ack is not None
    assert ack.uncommitted == {"T-0": 3, "T-1": 1}

    said.forget_losses()
    ack = said.ack(moment(2))
    assert ack is not None
    assert ack.uncommitted == {}
