"""Callbacks of an application wait for its own threads, and their exceptions end nothing."""

from __future__ import annotations

import pytest

from srm.client.cluster_producers import Reports


def test_an_exception_comes_out_of_serve_and_the_rest_waits_for_the_next_call() -> None:
    reports, seen = Reports(), []
    reports.add(lambda: 1 / 0)
    reports.add(seen.append, 1)

    with pytest.raises(ZeroDivisionError):
        reports.serve(0)
    assert (len(reports), seen) == (1, [])
    assert reports.serve(0) == 1
    assert seen == [1]


def test_serving_all_runs_everything_and_raises_the_first_exception() -> None:
    reports, seen = Reports(), []
    reports.add(lambda: 1 / 0)
    reports.add(lambda: int("x"))
    reports.add(seen.append, 1)

    with pytest.raises(ZeroDivisionError):
        reports.serve_all()
    assert (len(reports), seen) == (0, [1])


def test_what_a_callback_adds_waits_for_the_next_call() -> None:
    reports, seen = Reports(), []
    reports.add(lambda: reports.add(seen.append, 1))

    assert reports.serve(0) == 1
    assert seen == []
    assert reports.serve(0) == 1
