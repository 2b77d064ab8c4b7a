"""The service ends soon, whatever its threads wait for."""

from __future__ import annotations

import threading

from srm.service.views.watching import end_all


class Waiting:
    """A thread that ends when it is told to, or only when the test lets it go."""

    def __init__(self, *, is_stuck: bool = False) -> None:
        self.let_go = threading.Event()
        self.is_stuck = is_stuck
        self.thread = threading.Thread(target=self.let_go.wait, args=(60,), daemon=True)
        self.thread.start()

    def end(self) -> None:
        if not self.is_stuck:
            self.let_go.set()


def test_who_can_end_has_ended() -> None:
    threads = [Waiting(), Waiting()]

    end_all(threads)

    assert not any(one.thread.is_alive() for one in threads)


def test_one_that_waits_for_a_cluster_which_is_away_is_not_waited_for() -> None:
    """And it does not keep the others from being told."""
    stuck, other = Waiting(is_stuck=True), Waiting()

    end_all([stuck, other], limit_s=0.01)

    assert stuck.thread.is_alive()
    assert other.let_go.is_set()
    stuck.let_go.set()


def test_one_that_was_never_started_is_none_to_wait_for() -> None:
    one = Waiting()
    one.end()
    one.thread = threading.Thread()

    end_all([one])
