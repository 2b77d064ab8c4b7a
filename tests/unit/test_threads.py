"""What a signal leads to does not wait for what the signal has interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from srm.threads import on_signals

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def number() -> Iterator[signal.Signals]:
    """A signal nobody else here listens to; it gets its handler back."""
    before = signal.getsignal(signal.SIGUSR2)
    yield signal.SIGUSR2
    signal.signal(signal.SIGUSR2, before)


def test_a_lock_that_the_interrupted_thread_holds_does_not_hang_it(
    number: signal.Signals,
) -> None:
    lock, called = threading.Lock(), threading.Event()

    def call(_number: int) -> None:
        with lock:
            called.set()

    on_signals(number, call=call)
    with lock:
        signal.raise_signal(number)
        assert not called.is_set()

    assert called.wait(30)


def test_each_signal_is_told_with_its_number(number: signal.Signals) -> None:
    told: list[int] = []
    both = threading.Event()

    def call(received: int) -> None:
        told.append(received)
        if len(told) == 2:
            both.set()

    on_signals(number, call=call)
    signal.raise_signal(number)
    signal.raise_signal(number)

    assert both.wait(30)
    assert told == [number, number]
