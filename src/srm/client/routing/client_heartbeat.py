"""Announcements of a client to the clusters: its presence and its state on each route."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Final

from srm.client.routing.following import Announcement, Moment
from srm.client.routing.routing import RoutingWatcher
from srm.clock import now_ms
from srm.domain.moves.routing import Ack, AckState, ClientKind, Route

REPEAT_S: Final = 30.0
"""Seconds after which a client repeats its announcements."""


def now() -> Moment:
    """Read both clocks."""
    return Moment(now_ms(), time.monotonic())


class Announcer:
    """Writes one client's announcements, repeats them, and withdraws them when it is closed.

    They only report: a refusal is logged. Nothing is opened before the first. Thread-safe.
    """

    def __init__(self, watcher: RoutingWatcher, client_id: str, kind: ClientKind) -> None:
        self._watcher = watcher
        self._client_id = client_id
        self._kind: ClientKind = kind
        self._lock = threading.Lock()
        self._said: dict[str, Announcement] = {}
        self._written: dict[str, Ack] = {}
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def reach(
        self,
        subject: str,
        route: Route,
        state: AckState,
        positions: Mapping[str, int] | None = None,
    ) -> None:
        """Announce a state."""
        with self._lock:
            self._of(subject).reach(route, state, now(), positions)
            self._write(subject)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(
                    target=self._repeat, name="srm-announcer", daemon=True
                )
                self._thread.start()

    def has_reached(self, subject: str, state: AckState) -> bool:
        """Return whether a state of the present generation was announced."""
        with self._lock:
            return self._of(subject).has_reached(state)

    def forget_losses(self, subject: str) -> None:
        """Reset the count of losses."""
        with self._lock:
            self._of(subject).forget_losses()

    def lose(self, subject: str, uncommitted: Mapping[str, int]) -> None:
        """Announce records that were processed and could not be committed."""
        if any(uncommitted.values()):
            with self._lock:
                self._of(subject).lose(uncommitted)
                self._write(subject)

    def close(self) -> None:
        """Withdraw all announcements."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            for ack in self._written.values():
                self._watcher.withdraw(ack)
            self._written.clear()

    def _of(self, subject: str) -> Announcement:
        if subject not in self._said:
            self._said[subject] = Announcement(subject, self._client_id, self._kind)
        return self._said[subject]

    def _write(self, subject: str) -> None:
        ack = self._said[subject].ack(now())
        if ack is not None and not self._closed.is_set():
            self._written[subject] = ack
            self._watcher.acknowledge(ack)

    def _repeat(self) -> None:
        while not self._closed.wait(REPEAT_S):
            with self._lock:
                for subject in self._said:
                    self._write(subject)
