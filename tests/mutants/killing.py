"""Plays seeds with a mutant in place until the checker, or a test, finds the damage."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

from tests.mutants.mutants import Mutant

from srm_lab.testing.simulation.run import play

MOST_SEEDS = 1000


@dataclass(frozen=True)
class Killed:
    """What became of a mutant."""

    name: str
    seed: int | None
    finding: str

    @property
    def dead(self) -> bool:
        """Whether it was found out."""
        return self.seed is not None

    @property
    def line(self) -> str:
        """One line for people."""
        how = f"seed {self.seed}: {self.finding}"[:110] if self.dead else self.finding
        return f"{self.name:45} {how}"


def kill(mutant: Mutant, seeds: int = MOST_SEEDS) -> Killed:
    """Return the first seed that is fine without the mutant, and not with it."""
    if mutant.killer:
        return _by_test(mutant)
    for seed in range(seeds):
        with mutant.in_place():
            finding = _finding(mutant, seed)
        if finding and not _finding(mutant, seed):
            return Killed(mutant.name, seed, finding)
    return Killed(mutant.name, None, f"ALIVE after {seeds} seeds of {mutant.faults}")


def _finding(mutant: Mutant, seed: int) -> str:
    try:
        return "; ".join(play(seed, kinds=mutant.faults).problems)
    except Exception as error:  # noqa: BLE001 - a world that breaks down is damage too
        return f"broke down: {error!r}"


def _by_test(mutant: Mutant) -> Killed:
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants.tested", mutant.name, mutant.killer],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode == 1:
        return Killed(mutant.name, 0, f"by {mutant.killer}")
    return Killed(mutant.name, None, f"ALIVE: {mutant.killer} ended with {done.returncode}")
