"""Request of the benchmark of a move's hold time."""

from __future__ import annotations

from bench.move_groups import TOPIC, move_request


def test_the_measured_move_is_within_the_bounds_of_requests() -> None:
    """A request out of bounds raises, as it did when the wait was 0 seconds."""
    request = move_request(["one", "two"])
    assert request.topics == (TOPIC,)
    assert request.groups == ("one", "two")
