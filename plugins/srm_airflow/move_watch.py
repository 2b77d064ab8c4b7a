"""Repeated looks at the gate of one move, with clients that stay open in between."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from srm.config.loader import load_config
from srm.domain.move.gate import SyncStatus
from srm.domain.topics import Flow
from srm.engine import move
from srm.engine.control_lists import merged_if_known
from srm.engine.move.store import MoveContext
from srm_airflow.settings import wiring


@contextmanager
def opened_move(config_path: str, source: str, target: str) -> Iterator[MoveContext]:
    """Open both flows between the clusters of a move.

    Raises:
        SrmError: the configuration does not know the clusters, or one does not answer.
    """
    config = load_config(config_path)
    flow = Flow.parse(f"{source}->{target}")
    parts = wiring()
    with (
        parts.open_cluster(config, source) as here,
        parts.open_cluster(config, target) as there,
    ):
        forward = merged_if_known(config.flow(flow), there)
        reverse = merged_if_known(config.flow(flow.reversed), here)
        yield MoveContext(
            parts.flow_context(forward, here, there), parts.flow_context(reverse, there, here)
        )


class MoveWatch:
    """Looks at one move; opened by the first look, so the constructor does no I/O.

    A look may still be under way in its thread when the trigger is cancelled: closing waits for it.
    """

    def __init__(self, config_path: str, move_id: str, source: str, target: str) -> None:
        self._where = (config_path, source, target)
        self._move_id = move_id
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._context: MoveContext | None = None

    def poll(self) -> SyncStatus:
        """Look once, in bounded time.

        Raises:
            SrmError: a cluster does not answer, or the move is not one that waits.
        """
        with self._lock:
            if self._context is None:
                self._context = self._stack.enter_context(opened_move(*self._where))
            return move.wait_status(self._context, self._move_id)

    def close(self) -> None:
        """Close all clients."""
        with self._lock:
            self._context = None
            self._stack.close()
