"""What a connection waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from srm.errors import UnavailableError
from srm.replication.buffers import PooledBuffer


class PendingAnswer(NamedTuple):
    """An answer that is due, what is made of its bytes, and who gets that.

    The broker was asked to wait for ``wait_s`` seconds before it answers, with ``least`` bytes at
    least. ``told`` gets what was made, or the error.
    """

    decode: Callable[[PooledBuffer], Any]
    told: Callable[[Any], None]
    wait_s: float = 0.0
    least: int = 0


def settle(future: asyncio.Future[Any], made: object) -> None:
    """Give a future what was made of an answer, or the error, unless it is done."""
    if future.done():
        return
    if isinstance(made, UnavailableError):
        future.set_exception(made)
    else:
        future.set_result(made)
