"""Plays seeds by the command, so that what fails in a test is repeated by it, byte for byte."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

AT_ONCE = 50


def pieces(first: int, end: int) -> Iterator[tuple[int, int]]:
    """Split a range of seeds into those of one process each."""
    for begin in range(first, end, AT_ONCE):
        yield begin, min(end, begin + AT_ONCE)


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
