"""Seeds after those of the fast tier: they are played where a change touches the copy path."""

from __future__ import annotations

import pytest
from tests.simulation.playing import pieces, play
from tests.simulation.test_losing_seeds import OF_A_KIND
from tests.simulation.test_moves import MOVES, quiet
from tests.simulation.test_seeds import SEEDS

from srm_lab.testing.simulation.faults import DIVERGING, UNKIND
from srm_lab.testing.simulation.moves import run as moves

__all__ = ["quiet"]


@pytest.mark.timeout(1000)
@pytest.mark.parametrize(("first", "end"), pieces(SEEDS, 500))
def test_nothing_is_lost_doubled_or_translated_wrongly_whatever_befalls_a_flow(
    first: int, end: int
) -> None:
    play("--seeds", f"{first}:{end}")


@pytest.mark.timeout(1000)
@pytest.mark.parametrize(("first", "end"), pieces(SEEDS, 400))
def test_kills_pauses_elections_and_outages_leave_no_trace(first: int, end: int) -> None:
    play("--kinds", "ordinary", "--seeds", f"{first}:{end}")


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("kinds", ["seal,kill slot", "seal deaf"])
def test_a_sealed_copy_never_grows_and_its_end_translates(kinds: str) -> None:
    play("--kinds", kinds, "--seeds", "20:60")


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("kind", [*UNKIND, *DIVERGING])
def test_what_one_log_or_the_state_has_lost_is_found_out(kind: str) -> None:
    play("--kinds", kind, "--seeds", f"{OF_A_KIND}:25")


@pytest.mark.parametrize("seed", range(MOVES, 8))
def test_in_planned_moves_each_group_reads_each_record_once(seed: int) -> None:
    played = moves.play(seed)

    assert played.problems == []
    assert played.sites.serial
