"""Numbers with their nouns, and reasons with their remedies, for messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Self

from srm.domain.names.topics import Flow
from srm.errors import SrmError

_NAMED: Final = 8
"""Maximum names in a sentence."""
_REASONS: Final = 5
"""Maximum reasons in a message."""
_MINUTE: Final = 60
_UNITS: Final = ((86_400, "d", 3600, "h"), (3600, "h", _MINUTE, "min"), (_MINUTE, "min", 1, "s"))
"""Units of long durations in seconds, each with the next smaller one."""
_LAST_S: Final = 253_402_300_799
"""The end of the year 9999, the latest time that is shown; the earliest one is the epoch."""


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


def duration(seconds: float, *, brief: bool = False) -> str:
    """Format a duration in its two largest units: ``0.4 s``, ``41 s``, ``3 min 20 s``, ``2 h``.

    ``brief``: the second one only below ten of the first.
    """
    if seconds < _MINUTE:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    size, unit, part, lesser = next(row for row in _UNITS if seconds >= row[0])
    whole, rest = divmod(int(seconds), size)
    parts = 0 if brief and whole >= 10 else rest // part
    return f"{whole} {unit}" + (f" {parts} {lesser}" if parts else "")


def ago(age_ms: float) -> str:
    """Format an age: ``3 s ago``, ``6 min 2 s ago``; a negative age (clock skew) counts as 0."""
    seconds = max(0.0, age_ms / 1000)
    return f"{seconds:.0f} s ago" if seconds < _MINUTE else f"{duration(seconds)} ago"


def moment(time_ms: float) -> datetime:
    """Return a time in epoch milliseconds as one of the calendar, in UTC."""
    return datetime.fromtimestamp(min(max(time_ms / 1000, 0), _LAST_S), UTC)


def utc(time_ms: float) -> str:
    return f"{moment(time_ms):%Y-%m-%d %H:%M:%S} UTC"


_COMMAND: Final = re.compile(r"srm(-control|-service)? ")


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason for a problem, a text for operators, with the one action against it, if any."""

    text: str
    action: str = ""

    @classmethod
    def of(cls, error: SrmError) -> Reason:
        return cls(str(error), error.action)

    @property
    def line(self) -> str:
        """The text, followed by the action unless it includes that."""
        has_action = self.action and self.action not in self.text
        return f"{self.text}: {self.action}" if has_action else self.text

    def within(self, what: str) -> Self:
        """Return the same reason, with a subject before it."""
        return replace(self, text=f"{what}: {self.text}")


@dataclass(frozen=True, slots=True)
class Finding(Reason):
    """Condition with its id, the same in every text; one that ``blocks`` must end, others warn."""

    id: str = ""
    blocks: bool = True


def problem(finding_id: str, text: str, action: str = "") -> Finding:
    return Finding(text, action, finding_id)


def warning(finding_id: str, text: str, action: str = "") -> Finding:
    return Finding(text, action, finding_id, blocks=False)


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
