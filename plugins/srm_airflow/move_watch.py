"""Repeated looks at the gate of one move, with clients that stay open in between."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from srm.domain.moves.gate.gate import SyncStatus
from srm.engine import moves
from srm.engine.moves.control.move_records import MoveContext
from srm_airflow.engine_calls import opened_move


class MoveWatch:
    """Looks at one move; opened by the first look, so the constructor does no I/O.

    A look may still be under way in its thread when the trigger is cancelled: closing waits for it.
    """

    def __init__(self, config_path: str, move_id: str, source: str, target: str) -> None:
        self._where = (source, target, config_path)
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
            return moves.wait_status(self._context, self._move_id)

    def close(self) -> None:
        """Close all clients."""
        with self._lock:
            self._context = None
            self._stack.close()
