"""Patience of a command: time of each cluster for a first answer, unlimited in other processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from srm.errors import SrmError

DEFAULT_S: Final = 4.0
"""Seconds for TCP, TLS, a login and one answer, all of them together."""


@dataclass(frozen=True)
class FirstAnswers:
    """Limit of the first answers in ``seconds``; ``known``: error or None by alias and address."""

    seconds: float
    known: dict[tuple[str, str], SrmError | None] = field(default_factory=dict)


_current: ContextVar[FirstAnswers | None] = ContextVar("srm_patience", default=None)


def current() -> FirstAnswers | None:
    """Return the patience of this command; None without a limit."""
    return _current.get()


@contextmanager
def limit(seconds: float | None) -> Iterator[None]:
    """Give each cluster that the block opens some seconds for its first answer, None: no limit."""
    token = _current.set(None if seconds is None else FirstAnswers(seconds))
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def renew() -> Iterator[None]:
    """Query each cluster again in the block: a silent one may be back."""
    now = _current.get()
    if now is None:
        yield
        return
    with limit(now.seconds):
        yield
