"""Queue of application callbacks that wait until one of its threads serves them."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)


class Reports:
    """Queue between the producer's own thread and the application's threads that poll.

    An exception of a callback is logged and raised from the call that served it. The callbacks
    after it remain queued; the producer's thread is not affected.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, callback: Callable[..., Any], *arguments: Any) -> None:
        """Queue a callback."""
        with self._changed:
            self._waiting.append((callback, arguments))
            self._changed.notify_all()

    def later(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that queues the callback."""

        def add(*arguments: Any) -> None:
            self.add(callback, *arguments)

        return add

    def serve(self, timeout_s: float) -> int:
        """Run queued callbacks; wait up to ``timeout_s`` for the first (less than 0: no limit).

        Returns:
            Number of callbacks run.
        """
        with self._changed:
            limit = None if timeout_s < 0 else timeout_s
            self._changed.wait_for(lambda: self._waiting, limit)
        served = 0
        for _ in range(len(self._waiting)):
            if not self._run():
                break
            served += 1
        return served

    def serve_all(self) -> None:
        """Run all queued callbacks, then raise the first exception."""
        first: BaseException | None = None
        while self._waiting:
            try:
                self._run()
            except Exception as error:  # noqa: BLE001 -- the application's, raised below
                first = first or error
        if first is not None:
            raise first

    def wait(self, seconds: float) -> None:
        """Wait up to ``seconds`` for a callback."""
        deadline = time.monotonic() + seconds
        with self._changed:
            self._changed.wait_for(lambda: self._waiting, max(0.0, deadline - time.monotonic()))

    def _run(self) -> bool:
        with self._changed:
            if not self._waiting:
                return False
            callback, arguments = self._waiting.popleft()
        try:
            callback(*arguments)
        except Exception:
            log.exception("a callback of the application raised")
            raise
        return True
