"""Kills every mutant, or says which ones live: ``make mutants``."""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.mutants.killing import MOST_SEEDS, Killed, kill
from tests.mutants.mutants import MUTANTS


def main() -> int:
    """Return 1 if a mutant lives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("names", nargs="*", help="some of them")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=MOST_SEEDS)
    given = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.mutants", *sys.argv[1:]])  # noqa: S606
    chosen = [m for m in MUTANTS if not given.names or m.name in given.names]
    alive = 0
    with ProcessPoolExecutor(given.jobs) as pool:
        for found in pool.map(partial(_killed, given.seeds), [m.name for m in chosen]):
            alive += not found.dead
            print(found.line, flush=True)  # noqa: T201 - a command
    print(f"{len(chosen)} mutants, {alive} alive")  # noqa: T201
    return int(bool(alive))


def _killed(seeds: int, name: str) -> Killed:
    [mutant] = [m for m in MUTANTS if m.name == name]
    return kill(mutant, seeds)


if __name__ == "__main__":
    sys.exit(main())
