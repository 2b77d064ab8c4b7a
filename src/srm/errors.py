"""All errors srm raises deliberately.

A message is one line: what happened, where, and what to do. The last part is also a separate value
for programs. Only the class determines the exit code, the HTTP status and the retry by Airflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

UNEXPECTED: Final = 1
INTERRUPTED: Final = 130
EXIT_CODES: Final[Mapping[int, str]] = {
    0: "done",
    UNEXPECTED: "unexpected error",
    2: "bad input or configuration",
    3: "not found",
    4: "conflict",
    5: "gate closed",
    6: "cluster unavailable",
    7: "data loss",
    8: "integrity",
    9: "not authorized",
    10: "embedded stack",
    INTERRUPTED: "interrupted, or not approved",
}
"""Exit codes of all commands, and what they mean."""


def message(what: str, action: str) -> str:
    """Return one line of text: what happened, and the action if there is one."""
    return f"{what}; {action}" if action else what


class SrmError(Exception):
    """Base of all srm errors: ``what`` happened, and the ``action`` to take, empty if unknown."""

    exit_code: ClassVar[int] = UNEXPECTED
    http_status: ClassVar[int] = 500
    retriable: ClassVar[bool] = False

    def __init__(self, what: str = "", action: str = "") -> None:
        super().__init__(message(what, action))
        self.what = what
        self.action = action


class UsageError(SrmError):
    """The input is invalid; nothing was changed."""

    exit_code = 2
    http_status = 400


class ConfigError(UsageError):
    """The properties file, or a key in it, is invalid."""


class NotFoundError(SrmError):
    """A named topic, group, plan or flow does not exist."""

    exit_code = 3
    http_status = 404


class ElsewhereError(NotFoundError):
    """This service does not watch the object; that of cluster ``target`` may, empty: any."""

    def __init__(self, message: str, target: str = "") -> None:
        super().__init__(message)
        self.target = target


class ConflictError(SrmError):
    """The clusters are not in the state the call needs."""

    exit_code = 4
    http_status = 409


class GateClosedError(ConflictError):
    """A move may not redirect clients yet: a group is not synchronised."""

    exit_code = 5


class GroupActiveError(ConflictError):
    """A consumer group has members, so its offsets may not be written."""


class FencedError(ConflictError):
    """Another owner has taken over this partition, flow or record."""


class SupersededError(FencedError):
    """Another application drives the flow; slots of this one have nothing left to copy."""


class DataLossError(SrmError):
    """Records that should be copied no longer exist; the message names the exact range."""

    exit_code = 7


class IntegrityError(SrmError):
    """Bytes, offsets or maps contradict each other."""

    exit_code = 8


class NotLoadedError(IntegrityError):
    """The requested part of an offset map was not loaded."""


class UnavailableError(SrmError):
    """A cluster or service does not answer in time; a retry may help."""

    exit_code = 6
    http_status = 503
    retriable = True


class GivenUpError(UnavailableError):
    """The cluster was silent, or a move has abandoned it; srm does not wait for it now."""


class BusyError(UnavailableError):
    """Other steps of moves write the control records; nothing was changed, and a retry may help."""


class AuthorizationError(SrmError):
    """The broker refused the call because a right is missing."""

    exit_code = 9
    http_status = 403


class StackError(SrmError):
    """The embedded stack cannot start or run."""

    exit_code = 10


class StoppedError(SrmError):
    """A signal or a request ended a command before it had done all."""

    exit_code = INTERRUPTED
