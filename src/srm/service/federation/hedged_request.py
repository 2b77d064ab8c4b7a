"""The first of several who may know: asked one after the other, but nobody uses up the time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from srm.errors import UnavailableError

_T = TypeVar("_T")


async def first_answer(asks: Sequence[Callable[[], Awaitable[_T]]], patience_s: float) -> _T:
    """Ask, until one answers.

    The next one is asked where one fails, or is not heard of in a while; those asked before may
    still answer first. What is not needed any more is cancelled.

    Args:
        asks: each asks one; it has a limit of its own.
        patience_s: seconds until the next one is asked, too.

    Raises:
        UnavailableError: none has answered; with what each of them has failed of.
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
