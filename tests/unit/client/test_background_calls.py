"""A caller stops to wait for a cluster that is given up; the call goes on without it."""

from __future__ import annotations

import gc
import threading

import pytest
from tests.waiting import DEADLINE_S, eventually

from srm.client.threads import Aside
from srm.errors import GivenUpError


def test_a_call_returns_and_raises_as_if_it_was_made_here() -> None:
    aside = Aside("a", lambda: False)

    assert aside.call(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        aside.call(lambda: 1 // 0)
    with pytest.raises(TimeoutError):
        aside.call(_time_out)
    aside.leave()


def _time_out() -> None:
    raise TimeoutError


def test_a_call_that_blocks_is_left_alone_when_the_cluster_is_given_up() -> None:
    answers, given_up = threading.Event(), threading.Event()
    order: list[str] = []
    aside = Aside("a", given_up.is_set)

    def blocked() -> None:
        given_up.set()
        answers.wait(DEADLINE_S)
        order.append("blocked")

    with pytest.raises(GivenUpError):
        aside.call(blocked)
    aside.leave(_time_out, lambda: order.append("last"))
    aside.join(0.01)

    assert order == []
    assert not aside.is_over
    answers.set()
    aside.join(DEADLINE_S)
    assert order == ["blocked", "last"]
    assert aside.is_over


def test_nothing_is_asked_of_a_cluster_that_was_given_up_before() -> None:
    asked: list[int] = []
    with pytest.raises(GivenUpError):
        Aside("a", lambda: True).call(lambda: asked.append(1))
    assert asked == []


def test_the_thread_of_a_client_that_nobody_closes_ends() -> None:
    aside = Aside("forgotten", lambda: False)
    aside.call(lambda: None)
    del aside
    gc.collect()

    eventually(
        lambda: all(thread.name != "forgotten" for thread in threading.enumerate()), "it ended"
    )
