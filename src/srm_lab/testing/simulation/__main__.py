"""Plays seeds: ``python -m srm_lab.testing.simulation 17 -v`` or ``--seeds 0:3000 --jobs 2``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from srm_lab.testing.simulation.run import SeedOutcome, play, silent


def _print(line: str) -> None:
    print(line)  # noqa: T201 - a command


def _play(kinds: str, seed: int) -> SeedOutcome:
    try:
        return play(seed, kinds=kinds)
    except Exception as error:  # noqa: BLE001 - the other seeds are played all the same
        return SeedOutcome(seed, [f"the world broke down: {error!r}"])


def main() -> int:
    """Play what the command line says; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m srm_lab.testing.simulation")
    parser.add_argument("seed", nargs="?", type=int, help="one seed, with its findings")
    parser.add_argument("--seeds", help="from:to, many seeds")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--kinds", default="all", help="all, ordinary, filled, or some")
    parser.add_argument("--most", type=int, default=20, help="stop after this number of bad seeds")
    parser.add_argument("-v", "--verbose", action="store_true", help="show what happens")
    given = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets of names is part of a history
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(  # noqa: S606
            sys.executable, [sys.executable, "-m", "srm_lab.testing.simulation", *sys.argv[1:]]
        )
    if given.seeds is None:
        outcome = play(given.seed or 0, _print if given.verbose else silent, kinds=given.kinds)
        _report(outcome)
        _print(f"{outcome.steps} steps, {outcome.virtual_s:.1f} virtual seconds, {outcome.digest}")
        return int(bool(outcome.problems))
    first, _, last = given.seeds.partition(":")
    seeds = range(int(first), int(last))
    began, bad, count, steps, virtual = time.monotonic(), 0, 0, 0, 0.0
    with ProcessPoolExecutor(given.jobs) as pool:
        work = partial(_play, given.kinds)
        results = pool.map(work, seeds, chunksize=10) if given.jobs > 1 else map(work, seeds)
        for outcome in results:
            count += 1
            steps += outcome.steps
            virtual += outcome.virtual_s
            if outcome.problems:
                bad += 1
                _report(outcome)
                if bad >= given.most:
                    break
    seconds = time.monotonic() - began
    _print(
        f"{count} seeds, {bad} bad, {count / seconds:.1f} seeds/s, {steps / count:.0f} steps and "
        f"{virtual / count:.0f} virtual seconds each"
    )
    return int(bool(bad))


def _report(outcome: SeedOutcome) -> None:
    if outcome.problems:
        _print(f"seed {outcome.seed}: {', '.join(outcome.faults)}")
    for problem in outcome.problems:
        _print(f"  {problem}")


if __name__ == "__main__":
    sys.exit(main())
