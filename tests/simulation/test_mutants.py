"""``make mutants`` runs by hand: what it replaces has to be there all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.mutants.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_replaces_what_is_there_and_puts_it_back(mutant: Mutant) -> None:
    with mutant.in_place():
        assert not mutant.killer or (ROOT / mutant.killer).is_file()
    with mutant.in_place():
        pass
