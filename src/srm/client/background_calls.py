"""Calls that may block for as long as their cluster is away, made by a thread beside the caller's.

librdkafka waits up to a minute for a cluster that has died, in calls that cannot be interrupted.
The caller waits in slices, and stops when the cluster is given up; the call goes on alone.
"""

from __future__ import annotations

import logging
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Final, TypeVar

from srm.errors import GivenUpError

log = logging.getLogger(__name__)

SLICE_S: Final = 0.05
"""Seconds after which a waiting caller looks whether the cluster is given up."""

_T = TypeVar("_T")
_Work = queue.SimpleQueue["tuple[Future[Any], Callable[[], Any]] | None"]


class Aside:
    """The thread that makes such calls of one native client, one after the other.

    It ends with the process, whatever it waits for, and is not started before the first call.

    Args:
        name: of the thread.
        is_given_up: whether the client's cluster is given up; asked by waiting callers.
    """

    def __init__(self, name: str, is_given_up: Callable[[], bool]) -> None:
        self._name = name
        self._is_given_up = is_given_up
        self._work: _Work = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        # A client that nobody closes ends its thread all the same.
        weakref.finalize(self, self._work.put, None).atexit = False

    def call(self, work: Callable[[], _T]) -> _T:
        """Make a call and wait for it.

        Raises:
            GivenUpError: the cluster is given up; what becomes of the call is not known.
            Exception: what the call raises.
        """
        if self._is_given_up():
            raise GivenUpError("the cluster was given up by a move: not asked")
        done = self._put(work)
        while not wait([done], SLICE_S).done:
            if self._is_given_up():
                raise GivenUpError("the cluster was given up by a move: not waited for any more")
        return done.result()

    def leave(self, *last: Callable[[], Any]) -> None:
        """Make the last calls, in this order after those before, and end; wait for nothing."""
        for work in last:
            self._put(work).add_done_callback(_tell)
        self._work.put(None)

    def join(self, timeout_s: float) -> None:
        """Wait for the end after :meth:`leave`, but only so long."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    @property
    def is_over(self) -> bool:
        """Whether nothing runs in the thread, or will without another call."""
        return self._thread is None or not self._thread.is_alive()

    def _put(self, work: Callable[[], _T]) -> Future[_T]:
        done: Future[_T] = Future()
        self._work.put((done, work))
        if self._thread is None:
            self._thread = threading.Thread(
                target=_run, args=(self._work,), name=self._name, daemon=True
            )
            self._thread.start()
        return done


def _run(calls: _Work) -> None:
    while (item := calls.get()) is not None:
        done, work = item
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 -- the caller's, who may be gone
            done.set_exception(error)
        del done, work, item  # nothing of the client is kept while there is nothing to do


def _tell(done: Future[Any]) -> None:
    if error := done.exception():
        log.debug("a client that has left its cluster: %s", error)
