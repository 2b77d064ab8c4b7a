"""Whole worlds with faults of all kinds, played by their seeds and judged by the checker."""

from __future__ import annotations

import pytest
from tests.simulation.playing import pieces, play

SEEDS = 50
"""The fast tier plays as many; `test_more_seeds` plays those after them."""


@pytest.mark.timeout(1000)
@pytest.mark.parametrize(("first", "end"), pieces(0, SEEDS))
def test_nothing_is_lost_doubled_or_translated_wrongly_whatever_befalls_a_flow(
    first: int, end: int
) -> None:
    play("--seeds", f"{first}:{end}")


def test_a_seed_is_the_same_history_each_time_it_is_played() -> None:
    assert [play(str(seed)) for seed in (3, 46)] == [play(str(seed)) for seed in (3, 46)]
