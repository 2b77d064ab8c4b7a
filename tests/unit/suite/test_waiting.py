"""Deadlines of tests stop while the machine is starved, but for a tenth of the time."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import waiting
from tests.waiting import Pressure, Stopwatch, cpu_pressure


class Machine:
    """A machine whose clock and pressure the test sets."""

    now = 100.0
    waited = 10.0

    def monotonic(self) -> float:
        return self.now

    def pressure(self) -> Pressure:
        return Pressure(0.0, self.waited)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(waiting, "time", made)
    monkeypatch.setattr(waiting, "cpu_pressure", made.pressure)
    return made


def test_seconds_without_a_core_do_not_count(machine: Machine) -> None:
    watch = Stopwatch()

    machine.now += 60
    machine.waited += 40

    assert watch.elapsed_s == pytest.approx(20)
    assert watch.wall_s == pytest.approx(60)


def test_a_tenth_of_the_time_counts_on_the_busiest_machine(machine: Machine) -> None:
    watch = Stopwatch()

    machine.now += 60
    machine.waited += 60

    assert watch.elapsed_s == pytest.approx(6)


def test_a_pressure_that_begins_at_zero_again_counts_nothing(machine: Machine) -> None:
    watch = Stopwatch()

    machine.now += 60
    machine.waited = 0

    assert watch.elapsed_s == pytest.approx(60)


def test_a_wait_on_a_quiet_machine_ends_at_its_deadline(machine: Machine) -> None:
    with pytest.raises(AssertionError, match="not within 5 s"):
        waiting.eventually(lambda: False, "a miracle", 5)

    assert machine.now < 106


def test_the_pressure_is_that_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpu"
    file.write_text("some avg10=12.50 avg60=0.84 avg300=0.49 total=2242687\nfull avg10=0.00\n")
    monkeypatch.setattr(waiting, "_PRESSURE", file)
    assert cpu_pressure() == Pressure(12.5, 2.242687)

    monkeypatch.setattr(waiting, "_PRESSURE", tmp_path / "none")
    assert cpu_pressure() == Pressure(0.0, 0.0)
