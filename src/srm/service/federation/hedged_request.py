"""Hedged requests: query several services in turn without waiting long for a slow one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from srm.errors import UnavailableError

_T = TypeVar("_T")


async def first_answer(asks: Sequence[Callable[[], Awaitable[_T]]], patience_s: float) -> _T:
    """Return the first answer of several services.

    The next service is queried when one fails or does not answer in time. Earlier ones may still
    answer first. Requests that are no longer needed are cancelled.

    Args:
        asks: each sends one request, with a time limit of its own.
        patience_s: seconds until the next request is sent.

    Raises:
        UnavailableError: all requests failed; the message has the cause of each.
    """
    failures: list[str] = []
    pending: set[asyncio.Future[_T]] = set()
    try:
        for number, ask in enumerate(asks, 1):
            pending.add(asyncio.ensure_future(ask()))
            is_last = number == len(asks)
            while pending:
                done, pending = await asyncio.wait(
                    pending,
                    timeout=None if is_last else patience_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for one in done:
                    try:
                        return one.result()
                    except UnavailableError as error:
                        failures.append(str(error))
                if not is_last:
                    break
    finally:
        for one in pending:
            one.cancel()
    raise UnavailableError("; ".join(failures))
