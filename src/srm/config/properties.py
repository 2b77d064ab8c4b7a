"""Reading a Java properties file into lines that remember their line numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from srm.config.secrets import shown
from srm.errors import ConfigError

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_BLANK: Final = " \t\f"
_CONTINUED: Final = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
_SEPARATOR: Final = re.compile(r"(?<!\\)(?:\\\\)*([ \t\f]*[=:]|[ \t\f])[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u.{0,4}|.)")
_UNICODE: Final = re.compile(r"u[0-9a-fA-F]{4}")
_PAIR: Final = re.compile(r"[\ud800-\udbff][\udc00-\udfff]")
_ESCAPED: Final = {"t": "\t", "n": "\n", "f": "\f", "r": "\r"}
_TO_ESCAPE: Final = re.compile(r"[^ -~]|[\\#!=:]")
_ESCAPES: Final = {character: f"\\{letter}" for letter, character in _ESCAPED.items()}


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
    """Parse the syntax of java.util.Properties, comments and continuation lines included."""
    found = []
    for line, written in _logical_lines(text):
        split = _SEPARATOR.search(written)
        key, value = (written[: split.start(1)], written[split.end() :]) if split else (written, "")
        try:
            found.append(Property(_unescape(key), _unescape(value).strip(), line))
        except ValueError as error:
            raise ConfigError(
                f"line {line}: invalid escape {error}; write \\u with four hexadecimal digits"
            ) from None
    return tuple(found)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with those that continue them, and the number of each; skip comments."""
    lines = enumerate(_LINE_END.split(text), 1)
    for began, natural in lines:
        line = natural.lstrip(_BLANK)
        if line.startswith(("#", "!")):
            continue
        while _CONTINUED.search(line):
            line = line[:-1] + next(lines, (0, ""))[1].lstrip(_BLANK)
        if line:
            yield began, line


def _unescape(text: str) -> str:
    def character(escape: re.Match[str]) -> str:
        code = escape[1]
        if code[0] != "u":
            return _ESCAPED.get(code, code)
        if not _UNICODE.fullmatch(code):
            raise ValueError(escape[0])
        return chr(int(code[1:], 16))

    # Java writes a character beyond U+FFFF as a pair of surrogates.
    return _PAIR.sub(
        lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"),
        _ESCAPE.sub(character, text),
    )


def property_line(key: str, value: str, separator: str = "=") -> str:
    """Write a line in ASCII, as java.util.Properties does."""
    begin = "\\" if value.startswith(" ") else ""
    return _escape(key).replace(" ", "\\ ") + separator + begin + _escape(value)


def _escape(text: str) -> str:
    def escape(found: re.Match[str]) -> str:
        character = found[0]
        if character in "\\#!=:":
            return f"\\{character}"
        units = character.encode("utf-16-be", "surrogatepass").hex()
        written = "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
        return _ESCAPES.get(character, written)

    return _TO_ESCAPE.sub(escape, text)


def read_properties(path: Path) -> tuple[Property, ...]:
    r"""Read a file as UTF-8, or as Latin-1 (Java's encoding) where it is not UTF-8."""
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
