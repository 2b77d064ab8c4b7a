"""Whole worlds, played by their seeds and judged by the checker."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SEEDS = 3000
AT_ONCE = 50


def _play(*given: str) -> str:
    """Run the command, so that what fails here is repeated by it, byte for byte."""
    done = subprocess.run(
        [sys.executable, "-m", "srm.testing.simulation", *given],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, (
        f"{done.stdout}{done.stderr[-2000:]}\n"
        "replay one with: python -m srm.testing.simulation SEED -v"
    )
    return done.stdout


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_nothing_is_lost_doubled_or_translated_wrongly_whatever_befalls_a_flow(first: int) -> None:
    _play("--seeds", f"{first}:{first + AT_ONCE}")


def test_a_seed_is_the_same_history_each_time_it_is_played() -> None:
    assert [_play(str(seed)) for seed in (3, 46)] == [_play(str(seed)) for seed in (3, 46)]
