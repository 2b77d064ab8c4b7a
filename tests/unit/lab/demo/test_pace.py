"""The speed of an application, by the moves it has been through."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from srm_lab.demo.application import Pace, parse


class Waits(threading.Event):
    """An event that notes for how long it would have been waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.asked.append(timeout or 0.0)
        return False


def test_each_change_of_the_cluster_brings_the_next_pace_and_the_last_one_stays() -> None:
    waits = Waits()
    pace = Pace((10.0, 100.0, 0.0), waits)

    for cluster in ("P", "B", "P", "B"):
        pace.wait(cluster)

    assert len(waits.asked) == 2  # none at full speed
    assert 0.05 < waits.asked[0] <= 0.1
    assert 0.005 < waits.asked[1] <= 0.01


def test_payments_are_spread_evenly() -> None:
    waits = Waits()
    pace = Pace((10.0,), waits)

    for _ in range(5):
        pace.wait("P")

    assert waits.asked[-1] == pytest.approx(0.5, abs=0.1)


def test_the_command_line_names_a_pace_for_each_stretch() -> None:
    options = parse(
        ["--config", "c", "--group", "fraud", "--pace", "5,50,0", "--record", "r", "--delay", "2"]
    )

    assert options.pace == (5.0, 50.0, 0.0)
    assert (options.delay, options.record) == (2.0, Path("r"))
