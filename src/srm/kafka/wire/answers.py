"""Answers that a connection waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from srm.errors import UnavailableError
from srm.replication.buffers import PooledBuffer


class PendingAnswer(NamedTuple):
    """A due answer with its parser and its receiver.

    ``wait_s``: how long the broker may wait before it answers.
    ``least``: minimum size of the answer in bytes.
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
