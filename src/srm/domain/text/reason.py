"""Why something is not as it should be, as a value: in words, and what is to be done."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from srm.domain.names.topics import Flow
from srm.errors import SrmError, message

_COMMAND: Final = re.compile(r"srm(-control|-service)? ")


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is not as it should be, and the one thing to do about it, if there is one.

    The text is for people, and may say what to do as well.
    """

    text: str
    action: str = ""

    @classmethod
    def saying(cls, what: str, action: str) -> Reason:
        """Return a reason whose text says what to do."""
        return cls(message(what, action), action)

    @classmethod
    def of(cls, error: SrmError) -> Reason:
        """Return what an error says."""
        return cls(str(error), error.action)

    @property
    def line(self) -> str:
        """The text, followed by what to do where it does not say so itself."""
        has_action = self.action and self.action not in self.text
        return f"{self.text}: {self.action}" if has_action else self.text

    def within(self, what: str) -> Reason:
        """Return the same reason, said of something."""
        return Reason(f"{what}: {self.text}", self.action)


def is_command(action: str) -> bool:
    """Whether what is to be done is a command to run as it stands, and not words."""
    return _COMMAND.match(action) is not None


def set_key(flow: Flow, key: str, value: str) -> str:
    """Say how a setting of a flow gets another value, and what makes its replicator see it."""
    again = f"srm replicator restart --flow '{flow}'"
    return f"set {flow}.{key} = {value} in srm.properties, then run {again}"
