"""Filters of a flow's names, as MirrorMaker 2's DefaultTopicFilter and DefaultGroupFilter."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from srm.errors import ConfigError

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9._\-]+")


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile one entry of a list; a plain name is a pattern, too."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{pattern!r} is not a regular expression: {error}") from None


def literal(name: str) -> str:
    """Return a pattern that matches only this name, except that a comma becomes a dot."""
    if _PLAIN_NAME.fullmatch(name):
        return name
    return re.escape(name).replace(",", ".")


def split_patterns(text: str) -> tuple[str, ...]:
    """Split a comma separated list as MM2 does: no pattern can contain a comma."""
    return tuple(part for part in (part.strip() for part in text.split(",")) if part)


@dataclass(frozen=True, slots=True)
class NameFilter:
    """An include and an exclude list of regular expressions.

    A name is selected if an include pattern matches all of it and no exclude pattern does. Without
    an include pattern no name is selected. A filter of your own derives from it, overrides
    :meth:`matches` and is named ``module:Class`` in ``topic.filter.class``, ``group.filter.class``
    or ``config.property.filter.class``; the lists of srm-control are among its patterns.

    Raises:
        ConfigError: at construction, if a pattern does not compile.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in (*self.include, *self.exclude):
            compile_pattern(pattern)

    @property
    def names(self) -> frozenset[str]:
        """Names selected literally, not by a pattern."""
        return frozenset(filter(self.matches, filter(_PLAIN_NAME.fullmatch, self.include)))

    def matches(self, name: str) -> bool:
        """Return True if the name is selected."""
        return self.included_by(name) is not None and self.excluded_by(name) is None

    def included_by(self, name: str) -> str | None:
        """Return the first include pattern that matches all of the name, None without a match."""
        return _first_match(self.include, name)

    def excluded_by(self, name: str) -> str | None:
        """Return the first exclude pattern that matches all of the name, None without a match."""
        return _first_match(self.exclude, name)


SHADOW_PREFIX: Final = "srm-drill."
"""Prefix of the groups that a drill creates and removes; clients and flows never use them."""


SHADOWS: Final = re.escape(SHADOW_PREFIX) + ".*"
"""Pattern of these groups, which each filter of groups excludes."""


def _first_match(patterns: Iterable[str], name: str) -> str | None:
    return next((one for one in patterns if compile_pattern(one).fullmatch(name)), None)
