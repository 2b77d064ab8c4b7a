"""Patience of a command: time of each cluster for a first answer, unlimited in other processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from srm.errors import GivenUpError, SrmError

_Key = tuple[str, str]
DEFAULT_S: Final = 4.0
"""Seconds for TCP, TLS, a login and one answer, all of them together."""
_BELIEVED_S: Final = 5.0
"""A refusal counts as long, because a command makes several calls one after another."""


@dataclass(frozen=True)
class FirstAnswers:
    """Limit of the first answers in ``seconds``; ``known``: error or None by alias and address."""

    seconds: float
    known: dict[_Key, SrmError | None] = field(default_factory=dict)
    _until: dict[_Key, float] = field(default_factory=dict)

    def note(self, key: _Key, found: SrmError | None) -> SrmError | None:
        """Note what is wrong with a cluster, None if it answers; return it as calls raise it."""
        is_silent = found is not None and found.retriable
        self.known[key] = GivenUpError(found.what, found.action) if found and is_silent else found
        self._until[key] = time.monotonic() + _BELIEVED_S
        return self.known[key]

    def recent_refusal(self, key: _Key) -> SrmError | None:
        return self.known[key] if self._until.get(key, 0.0) > time.monotonic() else None


_current: ContextVar[FirstAnswers | None] = ContextVar("srm_patience", default=None)


def current() -> FirstAnswers | None:
    """Return the patience of this command; None without a limit."""
    return _current.get()


def forget() -> None:
    """Query each cluster again, briefly, before its next call: one may hang."""
    if (now := _current.get()) is not None:
        now.known.clear()


@contextmanager
def limit(seconds: float | None) -> Iterator[FirstAnswers | None]:
    """Give each cluster that the block opens some seconds for its first answer, None: no limit."""
    answers = None if seconds is None else FirstAnswers(seconds)
    token = _current.set(answers)
    try:
        yield answers
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
