"""What a signal leads to does not wait for what the signal has interrupted."""

from __future__ import annotations

import platform
import signal
import subprocess
import sys
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


HEAPS = """
import ctypes, threading
from srm.threads import share_heaps
share_heaps()
libc, held = ctypes.CDLL(None), threading.Barrier(30)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
def hold():
    libc.malloc(1000)
    held.wait()
threads = [threading.Thread(target=hold) for _ in range(30)]
for one in threads:
    one.start()
for one in threads:
    one.join()
file = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has heaps of threads")
def test_the_threads_of_a_process_share_few_heaps() -> None:
    """Each of 16 heaps held its own peak: a third of the memory of a driver was free."""
    found = subprocess.run(
        [sys.executable, "-c", HEAPS], capture_output=True, check=True, text=True
    )

    assert found.stdout.count("<heap nr=") <= 2
