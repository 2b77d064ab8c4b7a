"""Reading a Java properties file into lines that remember their line numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import javaproperties

from srm.config.secrets import shown
from srm.errors import ConfigError

_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True, repr=False)
class Property:
    """One ``key = value``; ``line`` is where it starts in the file, 0 for an override."""

    key: str
    value: str
    line: int = 0

    def __repr__(self) -> str:
        return f"Property({self.key!r}, {shown(self.key, self.value)!r}, {self.line})"

    def at(self, path: str) -> str:
        """Return the place of this line, for messages."""
        return f"{path} line {self.line}" if self.line else "override"


def parse_properties(text: str) -> tuple[Property, ...]:
    """Parse the syntax of java.util.Properties, comments and continuation lines included.

    Raises:
        ConfigError: an escape that Java would refuse.
    """
    found = []
    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                found.append(Property(element.key, element.value.strip(), line))
            line += len(_LINE_END.findall(element.source))
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError(f"line {line}: {error}; write \\u with four hexadecimal digits") from None
    return tuple(found)


def read_properties(path: Path) -> tuple[Property, ...]:
    r"""Read a file as UTF-8, or as Latin-1 (Java's encoding) where it is not UTF-8.

    Raises:
        ConfigError: the file cannot be read or parsed.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    try:
        return parse_properties(text)
    except ConfigError as error:
        raise ConfigError(f"{path} {error}") from None


def with_overrides(
    properties: Iterable[Property], overrides: Mapping[str, str] | None
) -> tuple[Property, ...]:
    """Put overrides in the place of lines of the same key."""
    overrides = overrides or {}
    kept = [line for line in properties if line.key not in overrides]
    return (*kept, *(Property(key, value.strip()) for key, value in overrides.items()))
