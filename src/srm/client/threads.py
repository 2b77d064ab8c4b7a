"""Threads of clients: one for calls that may block, and the consumers that a thread polls.

librdkafka waits up to a minute for a dead cluster. The caller waits in slices and stops when the
cluster is abandoned; the call continues in the background.
"""

from __future__ import annotations

import logging
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException

from srm.errors import GivenUpError
from srm.threads import fulfil, start_thread

log = logging.getLogger(__name__)

SLICE_S: Final = 0.05
"""Seconds after which a waiting caller checks whether the cluster is abandoned."""

_T = TypeVar("_T")
_Work = queue.SimpleQueue["tuple[Future[Any], Callable[[], Any]] | None"]


class Aside:
    """Thread that makes the blocking calls of one native client, one after the other."""

    def __init__(self, name: str, is_given_up: Callable[[], bool]) -> None:
        self._name = name
        self._is_given_up = is_given_up
        self._work: _Work = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        # A client that is never closed ends its thread too.
        weakref.finalize(self, self._work.put, None).atexit = False

    def call(self, work: Callable[[], _T]) -> _T:
        """Make a call and wait for it; GivenUpError: its result is unknown."""
        if self._is_given_up():
            raise GivenUpError("call not made: a move abandoned the cluster")
        done = self._put(work)
        while not wait([done], SLICE_S).done:
            if self._is_given_up():
                raise GivenUpError("result of the call unknown: a move abandoned the cluster")
        return done.result()

    def leave(self, *last: Callable[[], Any]) -> None:
        """Queue the last calls, in this order, and end after them; do not wait."""
        for work in last:
            self._put(work).add_done_callback(_note_failure)
        self._work.put(None)

    def join(self, timeout_s: float) -> None:
        """Wait up to ``timeout_s`` for the thread to end after :meth:`leave`."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    @property
    def is_over(self) -> bool:
        """True while the thread is not started or has ended."""
        return self._thread is None or not self._thread.is_alive()

    def _put(self, work: Callable[[], _T]) -> Future[_T]:
        done: Future[_T] = Future()
        self._work.put((done, work))
        if self._thread is None:
            self._thread = start_thread(self._name, partial(_run, self._work))
        return done


def _run(calls: _Work) -> None:
    while (item := calls.get()) is not None:
        done, work = item
        fulfil(done, work)  # the caller may have left
        del done, work, item  # an idle thread must not keep the client alive


def _note_failure(done: Future[Any]) -> None:
    if error := done.exception():
        log.debug("call failed after its client left the cluster: %s", error)


class _Mine(threading.local):
    def __init__(self) -> None:
        self.consumers: weakref.WeakSet[Any] = weakref.WeakSet()


MINE: Final = _Mine()
"""The ``consumers`` that this thread uses."""


def let_consumers_leave() -> None:
    """Let the consumers of this thread follow a hold, between two of their calls."""
    for consumer in list(MINE.consumers):
        try:
            consumer.follow()
        except KafkaException as error:  # it remains a member, and its next poll raises this
            log.warning("a consumer of this thread cannot leave: %s", error)
