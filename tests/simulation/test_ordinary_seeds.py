"""Worlds in which nothing is taken away: afterwards all has to be as if nothing had happened."""

from __future__ import annotations

import pytest
from tests.simulation.playing import pieces, play
from tests.simulation.test_seeds import SEEDS


@pytest.mark.timeout(1000)
@pytest.mark.parametrize(("first", "end"), pieces(0, SEEDS))
def test_kills_pauses_elections_and_outages_leave_no_trace(first: int, end: int) -> None:
    play("--kinds", "ordinary", "--seeds", f"{first}:{end}")


@pytest.mark.parametrize(("first", "end"), pieces(0, 20))
def test_a_target_that_others_have_filled_is_copied_to_once_that_is_decided(
    first: int, end: int
) -> None:
    play("--kinds", "filled", "--seeds", f"{first}:{end}")


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("kinds", ["seal,kill slot", "seal deaf"])
def test_a_sealed_copy_never_grows_and_its_end_translates(kinds: str) -> None:
    play("--kinds", kinds, "--seeds", "0:20")
