"""Plays seeds: ``python -m srm_lab.testing.simulation.moves 17 -v`` or ``--seeds 0:500``."""

from __future__ import annotations

import argparse
import logging
import sys
import time

from srm_lab.testing.simulation.moves.run import FAULTS, play


def main() -> int:
    """Play what the command line says; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m srm_lab.testing.simulation.moves")
    parser.add_argument("seed", nargs="?", type=int, help="one seed, with its findings")
    parser.add_argument("--seeds", help="from:to, many seeds")
    parser.add_argument("--faults", default=",".join(FAULTS), help="kinds of faults, or none")
    parser.add_argument("-v", "--verbose", action="store_true", help="show what happens")
    given = parser.parse_args()
    logging.getLogger("srm").setLevel(logging.CRITICAL)
    faults = frozenset(given.faults.split(",")) & {*FAULTS}
    first, _, end = (given.seeds or f"{given.seed or 0}:{(given.seed or 0) + 1}").partition(":")
    bad, began = 0, time.monotonic()
    for seed in range(int(first), int(end)):
        played = play(seed, faults, _show if given.verbose else lambda _: None)
        bad += bool(played.problems)
        if played.problems:
            _show(f"seed {seed}: {', '.join(played.episodes)}")
        for problem in played.problems:
            _show(f"  {problem}")
    count = int(end) - int(first)
    _show(f"{count} seeds, {bad} bad, {count / (time.monotonic() - began):.1f} seeds/s")
    return int(bool(bad))


def _show(line: str) -> None:
    print(line)  # noqa: T201 - a command


if __name__ == "__main__":
    sys.exit(main())
