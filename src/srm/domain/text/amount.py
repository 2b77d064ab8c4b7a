"""Numbers with their nouns, and reasons with their remedies, for messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from srm.domain.names.topics import Flow
from srm.errors import SrmError, message

_NAMED: Final = 8
"""Maximum names in a sentence."""
_REASONS: Final = 5
"""Maximum reasons in a message."""
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def amount(count: int, noun: str) -> str:
    """Return for example ``1 record`` or ``1,200 records``; the plural of ``noun`` adds an s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def span(least: int, most: int | None) -> str:
    """Return for example ``7``, ``3 to 1,200``, or ``3 or more`` without a bound."""
    if most is None:
        return f"{least:,} or more"
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def some(names: Sequence[str], most: int = _NAMED) -> str:
    """Join the first names; a shared cluster can have thousands of groups."""
    more = len(names) - most
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:most])} and {more:,} more"


def few(reasons: Sequence[str], most: int = _REASONS) -> tuple[str, ...]:
    """Return the first reasons, and the number of others: each partition of a move may have one."""
    more = len(reasons) - most
    return tuple(reasons) if more <= 0 else (*reasons[:most], f"and {more:,} more")


def excerpt(reasons: Sequence[str], most: int = 20) -> tuple[str, ...]:
    """Return the first reasons, each cut to 500 characters, for a document of limited size."""
    return tuple(reason[:500] for reason in few(reasons, most))


def reasons_text(reasons: Iterable[str], most: int = _REASONS) -> str:
    return "; ".join(few(tuple(reasons), most))


def duration(seconds: float) -> str:
    """Format a duration in its two largest units: ``0.4 s``, ``41 s``, ``3 min 20 s``, ``2 h``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    size, unit, lesser, part_of = _DAY, "d", _HOUR, "h"
    if seconds < _HOUR:
        size, unit, lesser, part_of = _MINUTE, "min", 1, "s"
    elif seconds < _DAY:
        size, unit, lesser, part_of = _HOUR, "h", _MINUTE, "min"
    whole, rest = divmod(int(seconds), size)
    part = rest // lesser
    return f"{whole} {unit}" + (f" {part} {part_of}" if part else "")


def ago(age_ms: float) -> str:
    """Format an age: ``3 s ago``, ``6 min 2 s ago``; a negative age (clock skew) counts as 0."""
    seconds = max(0.0, age_ms / 1000)
    return f"{seconds:.0f} s ago" if seconds < _MINUTE else f"{duration(seconds)} ago"


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


def grant(operation: str, topic: str, alias: str) -> str:
    """Return how to give srm a right to a topic of a cluster."""
    return f"grant {operation} on topic {topic} of {alias} to srm's principal (docs/security.md)"


def set_key(flow: Flow, key: str, value: str) -> str:
    """Return how to set a flow's setting to a value, and make its replicator read it."""
    again = f"srm replicator restart --flow '{flow}'"
    return f"set {flow}.{key} = {value} in srm.properties, then run {again}"
