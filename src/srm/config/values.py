"""From the text of a value to its type."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from srm.config.keys.config_key import ConfigKey, ValueKind
from srm.domain.names.policy import compile_pattern, split_patterns
from srm.errors import ConfigError

NEVER: Final = timedelta(days=36500)
"""Interval of something that is switched off (100 years: every timer can take it)."""

_CRON_FIELD: Final = r"[\d*,/\-A-Za-z#?]+"
_CRON: Final = re.compile(
    rf"@(?:hourly|daily|weekly|monthly|yearly)|{_CRON_FIELD}(?: {_CRON_FIELD}){{4}}"
)

Value = bool | int | str | timedelta | tuple[str, ...]


def parse_value(key: ConfigKey, text: str) -> Value:
    """Turn the text of a value into the key's type; a ``count`` starts at 1."""
    if key.kind == "choice":
        return _choice(text, key.choices)
    value = _PARSERS[key.kind](text)
    if key.choices and isinstance(value, tuple):
        return tuple(_choice(one, key.choices) for one in value)
    return value


def parse_boolean(text: str) -> bool:
    """Read ``true`` or ``false`` in any case."""
    if text.lower() not in {"true", "false"}:
        raise ConfigError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"{text!r} is not a whole number above 0")
    return int(text)


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ConfigError(f"{text!r} is not a whole number from 0")
    return int(text)


def _replication_factor(text: str) -> int:
    return -1 if text == "-1" else _count(text)


def _seconds(text: str) -> timedelta:
    try:
        interval = timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        raise ConfigError(f"{text!r} is not a number of seconds") from None
    if interval <= timedelta(0):
        raise ConfigError(f"{text!r} is not a number of seconds above 0")
    return min(interval, NEVER)


def _patterns(text: str) -> tuple[str, ...]:
    patterns = split_patterns(text)
    for pattern in patterns:
        compile_pattern(pattern)
    return patterns


def _cron(text: str) -> str:
    schedule = " ".join(text.split())
    if not _CRON.fullmatch(schedule):
        raise ConfigError(
            f"{text!r} is not a cron expression: give minute, hour, day, month and weekday, such "
            "as 0 6 * * 1, or @daily"
        )
    return schedule


def _choice(text: str, choices: tuple[str, ...]) -> str:
    if text.lower() not in choices:
        raise ConfigError(f"{text!r} is none of {', '.join(choices)}")
    return text.lower()


_PARSERS: Final[dict[ValueKind, Callable[[str], Value]]] = {
    "boolean": parse_boolean,
    "count": _count,
    "number": _number,
    "replication factor": _replication_factor,
    "seconds": _seconds,
    "list": split_patterns,
    "regexes": _patterns,
    "string": str,
    "cron": _cron,
}
