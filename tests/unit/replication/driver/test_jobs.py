from __future__ import annotations

import threading

import pytest

from srm.errors import SupersededError
from srm.replication.driver import driver
from srm.replication.driver.driver import Backoff, keep_running


def test_the_pause_doubles_for_a_job_that_keeps_dying_and_has_a_ceiling():
    pause = Backoff()

    pauses = [pause.after(0.1) for _ in range(10)]

    assert pauses[:3] == [0.2, 0.4, 0.8]
    assert pauses[-1] == driver.LONGEST_PAUSE_S


def test_the_pause_starts_small_again_after_a_job_that_ran_well():
    pause = Backoff()
    for _ in range(5):
        pause.after(0.1)

    assert pause.after(driver.HEALTHY_S) == driver.FIRST_PAUSE_S


def test_a_job_that_raises_or_returns_is_submitted_again_until_stopped(caplog):
    stop = threading.Event()
    runs: list[int] = []

    def job() -> None:
        runs.append(len(runs))
        if len(runs) == 1:
            raise OSError("worker lost")
        if len(runs) == 3:
            stop.set()

    keep_running("slot 0 of P->B", job, stop)

    assert len(runs) == 3
    assert "slot 0 of P->B ended, submitted again in 0.2 s: worker lost" in caplog.text
    assert "submitted again in 0.4 s: it returned" in caplog.text


def test_a_job_of_a_superseded_application_is_not_submitted_again():
    runs: list[int] = []

    def job() -> None:
        runs.append(1)
        raise SupersededError("another application drives flow P->B now")

    with pytest.raises(SupersededError):
        keep_running("slot 0 of P->B", job, threading.Event())

    assert len(runs) == 1
