"""Jinja placeholders in files and arguments, such as ``{{ bootstrap_servers }}``.

All are rendered for every cluster before the program starts: a mistake shows at once.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from srm.config.properties import property_line
from srm.errors import UsageError
from srm.extras import library
from srm.follow.values import Values

if TYPE_CHECKING:
    import jinja2
    import jinja2.meta as jinja2_meta
else:
    jinja2 = library("jinja2")
    jinja2_meta = library("jinja2.meta")

_OPEN: Final = "{{"
_JAVA_PROPERTIES: Final = "{{ java | properties }}\n"


def _properties(settings: Mapping[str, str]) -> str:
    """Return settings as the lines of a properties file."""
    return "\n".join(property_line(key, v) for key, v in settings.items())


@cache
def _jinja() -> jinja2.Environment:
    made = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    made.filters["properties"] = _properties
    return made


@dataclass(frozen=True, slots=True)
class Template:
    """A file to write before each start: ``origin`` names its text in messages."""

    origin: str
    text: str
    output: Path

    @classmethod
    def parse(cls, option: str) -> Template:
        """Read the file that an option ``IN:OUT`` names."""
        origin, found, output = option.partition(":")
        if not found or not origin or not output:
            raise UsageError(f"--template {option}: write it as IN:OUT")
        try:
            return cls(origin, Path(origin).read_text("utf-8"), Path(output))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--template {origin}: cannot be read ({error})") from None

    @classmethod
    def java_properties(cls, output: Path) -> Template:
        """Return the template of a file with all settings of a Java client."""
        return cls("--properties", _JAVA_PROPERTIES, output)

    def render(self, values: Values) -> str:
        """Fill in the values."""
        return _render(self.text, values.by_name(), self.origin)

    def write(self, values: Values) -> None:
        """Write the file atomically; only its owner can read one with a secret."""
        text = self.render(values)
        folder = self.output.absolute().parent
        try:
            descriptor, name = tempfile.mkstemp(dir=folder, prefix=f".{self.output.name}.")
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    if not _names(self.text, self.origin) & values.secrets:
                        os.fchmod(descriptor, 0o644)
                    file.write(text)
                Path(name).replace(self.output)
            except BaseException:
                with suppress(OSError):
                    Path(name).unlink()
                raise
        except OSError as error:
            raise UsageError(f"{self.output}: cannot be written ({error.strerror})") from None


def render_arguments(arguments: Sequence[str], values: Values) -> list[str]:
    """Fill in the placeholders of arguments; a list becomes ``a,b``.

    UsageError: a name is unknown, or a secret: all users can read a program's arguments.
    """
    rendered = []
    for argument in arguments:
        if _OPEN not in argument:
            rendered.append(argument)
            continue
        if secret := sorted(_names(argument, argument) & values.secrets):
            raise UsageError(
                f"{argument}: {secret[0]} is or holds a secret, and all users of the machine can "
                "read arguments: use the environment or --template"
            )
        named = {n: ",".join(v) if isinstance(v, list) else v for n, v in values.by_name().items()}
        rendered.append(_render(argument, named, argument))
    return rendered


def _names(text: str, origin: str) -> set[str]:
    try:
        return jinja2_meta.find_undeclared_variables(_jinja().parse(text))
    except jinja2.TemplateSyntaxError as error:
        raise UsageError(f"{origin}, line {error.lineno}: {error.message}") from None


def _render(text: str, named: Mapping[str, Any], origin: str) -> str:
    try:
        return _jinja().from_string(text).render(named)
    except jinja2.TemplateSyntaxError as error:
        raise UsageError(f"{origin}, line {error.lineno}: {error.message}") from None
    except (jinja2.TemplateError, TypeError, ValueError) as error:
        raise UsageError(f"{origin}: {error}; docs/clients.md lists the valid names") from None
