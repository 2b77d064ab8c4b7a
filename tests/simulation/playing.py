"""Plays seeds by the command, so that what fails in a test is repeated by it, byte for byte."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

AT_ONCE = 50
TIMES = float(os.environ.get("SRM_SIMULATION_TIMES", "1"))
"""How many times as many seeds as usual: with 3 the tests play some 3 600."""


def pieces(count: int) -> Iterator[tuple[int, int]]:
    """Split the first ``count`` seeds, or as many times more as was asked for."""
    end = max(1, round(count * TIMES))
    for first in range(0, end, AT_ONCE):
        yield first, min(end, first + AT_ONCE)


def play(*given: str) -> str:
    """Run the command; what it prints says which seeds are bad, and how to replay one."""
    command = [sys.executable, "-m", "srm_lab.testing.simulation", *given]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    kinds = f' --kinds "{given[given.index("--kinds") + 1]}"' if "--kinds" in given else ""
    assert done.returncode == 0, (
        f"{done.stdout}{done.stderr[-2000:]}\n"
        f"replay one with: python -m srm_lab.testing.simulation SEED{kinds} -v"
    )
    return done.stdout
