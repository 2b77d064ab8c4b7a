"""Reason for a problem as a value: a text and a remedy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from srm.domain.names.topics import Flow
from srm.errors import SrmError, message

_COMMAND: Final = re.compile(r"srm(-control|-service)? ")


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason for a problem, a text for operators, with the one action against it, if any."""

    text: str
    action: str = ""

    @classmethod
    def saying(cls, what: str, action: str) -> Reason:
        """Return a reason whose text includes the action."""
        return cls(message(what, action), action)

    @classmethod
    def of(cls, error: SrmError) -> Reason:
        """Return the reason of an error."""
        return cls(str(error), error.action)

    @property
    def line(self) -> str:
        """The text, followed by the action unless it includes that."""
        has_action = self.action and self.action not in self.text
        return f"{self.text}: {self.action}" if has_action else self.text

    def within(self, what: str) -> Reason:
        """Return the same reason, with a subject before it."""
        return Reason(f"{what}: {self.text}", self.action)


def is_command(action: str) -> bool:
    """Return True if an action is a command to run unchanged, and not words."""
    return _COMMAND.match(action) is not None


def set_key(flow: Flow, key: str, value: str) -> str:
    """Return how to set a flow's setting to a value, and make its replicator read it."""
    again = f"srm replicator restart --flow '{flow}'"
    return f"set {flow}.{key} = {value} in srm.properties, then run {again}"
