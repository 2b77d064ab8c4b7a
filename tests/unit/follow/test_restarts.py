"""When a program is started again."""

from __future__ import annotations

from srm.follow.program import Restarts


def test_pauses_double_up_to_half_a_minute() -> None:
    restarts = Restarts("on-failure", limit=0)
    pauses = [restarts.pause_after(1, 0.0) for _ in range(9)]
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_a_long_run_is_followed_by_a_first_failure() -> None:
    restarts = Restarts("on-failure", limit=2)
    assert [restarts.pause_after(1, 0.0) for _ in range(3)] == [0.5, 1, None]
    assert restarts.pause_after(1, 60.0) == 0.5


def test_the_policy_decides_about_success() -> None:
    assert Restarts("always").pause_after(0, 0.0) == 0.5
    assert Restarts("on-failure").pause_after(0, 0.0) is None
    assert Restarts("never").pause_after(1, 0.0) is None


def test_an_end_on_purpose_is_no_failure() -> None:
    restarts = Restarts(limit=1)
    restarts.pause_after(1, 0.0)
    restarts.forget()
    assert restarts.pause_after(1, 0.0) == 0.5


def test_no_limit_never_ends() -> None:
    restarts = Restarts("always", limit=0)
    assert [restarts.pause_after(1, 0.0) for _ in range(2000)][-1] == 30
