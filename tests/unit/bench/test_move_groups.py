"""Request of the benchmark of a move's hold time."""

from __future__ import annotations

from typing import get_args

from bench.move_groups import TOPIC, move_request

from srm.domain.moves.request import Mode


def test_the_measured_move_is_within_the_bounds_of_requests() -> None:
    """A request out of bounds raises, as it did when the wait was 0 seconds."""
    planned, unplanned = (move_request(["one", "two"], mode) for mode in get_args(Mode))
    assert planned.topics == unplanned.topics == (TOPIC,)
    assert planned.groups == unplanned.groups == ("one", "two")
    assert (planned.is_unplanned, unplanned.is_unplanned) == (False, True)
