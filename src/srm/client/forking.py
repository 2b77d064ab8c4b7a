"""Clients in a child process after ``fork``, as under gunicorn's ``--preload``.

A child has none of its parent's threads, so handles of librdkafka neither work there nor can they
be closed. What was opened before is refused; what was not opens its own in the child.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any, Final, Protocol


class Forked(Protocol):
    """Something that a child process has got from its parent."""

    def after_fork(self) -> None:
        """Forget threads, locks and handles of the parent; called in the child."""


_FORKED: Final[weakref.WeakSet[Any]] = weakref.WeakSet()


def survive_fork(one: Forked) -> None:
    """Call ``after_fork`` of an object in each child process."""
    _FORKED.add(one)


def keep_for_good(*handles: Any) -> None:
    """Never free handles of the parent: that would wait for its threads."""
    for handle in handles:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))


def _start_child() -> None:
    for one in list(_FORKED):
        one.after_fork()


os.register_at_fork(after_in_child=_start_child)
