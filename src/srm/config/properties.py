"""Lines of a Java properties file, with the values that are kept elsewhere.

References have the notation of Kafka's FileConfigProvider, DirectoryConfigProvider and
EnvVarConfigProvider: ``${file:PATH:KEY}``, ``${directory:PATH:FILE}`` and ``${env:NAME}``. A
provider must be declared as for Kafka (``config.providers = file``), by its class where it has
another name than these.

``${airflow:CONNECTION:FIELD}`` is a field of an Airflow connection, and ``P.airflow.connection``
takes all that a ``kafka`` connection says about reaching and logging in to a cluster. The plugin
for Airflow reads them. Processes that its tasks start get them in :data:`CONNECTIONS_VARIABLE`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import javaproperties

from srm.config.keys import PROVIDERS_KEY, SPARK_PREFIX
from srm.config.values import at_place, is_secret, own_problem, shown
from srm.domain.names.policy import split_patterns
from srm.errors import ConfigError
from srm.files import read_text

_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPABLE: Final = frozenset("\\tnrfu \t\r\n:=#!\"'")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True, repr=False)
class Property:
    """One ``key = value``; ``line`` is where it starts in the file, 0 for an override.

    -1: line of a file that was translated, in which it has no line.

    ``is_unresolved``: the value is not the one that is meant, as part of it has no value.
    ``dropped``: characters whose backslash Java drops.
    ``replaced``: the value in the file, where another has taken its place.
    """

    key: str
    value: str
    line: int = 0
    is_unresolved: bool = False
    dropped: tuple[str, ...] = field(default=(), compare=False)
    replaced: str = field(default="", compare=False)

    def __repr__(self) -> str:
        return f"Property({self.key!r}, {shown(self.key, self.value)!r}, {self.line})"

    def at(self, path: str) -> str:
        if self.line < 0:
            return path
        return f"{path} line {self.line}" if self.line else "override"


def parse_properties(text: str, path: str = "") -> tuple[Property, ...]:
    """Parse the syntax of java.util.Properties, comments and continuation lines included."""
    found, line, at = list[Property](), 1, 0
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                escaped = dict.fromkeys(_ESCAPED.findall(element.source))
                dropped = tuple(sign for sign in escaped if sign not in _ESCAPABLE)
                found.append(Property(element.key, element.value.strip(), line, dropped=dropped))
            line += len(_LINE_END.findall(element.source))
            at += len(element.source)
    except javaproperties.InvalidUEscapeError as error:
        is_shown = not is_secret(re.split(r"[=:\s]", text[at:].lstrip(), maxsplit=1)[0])
        escape = f" {error.escape}" if is_shown else ""
        why = f"invalid escape{escape}; write \\u with four hexadecimal digits"
        with own_problem():
            raise ConfigError(f"{path} line {line}: {why}".lstrip()) from None
        left = "\n" * (line - 1) + text[at:].replace(error.escape, "?", 1)
        for one in parse_properties(left, path):
            found.append(replace(one, is_unresolved=True) if one.line == line else one)
    return tuple(found)


def parse_translated(text: str) -> tuple[Property, ...]:
    """Parse a text that was made of another file: its line numbers say nothing."""
    return tuple(replace(line, line=-1) for line in parse_properties(text))


def read_properties(path: Path) -> tuple[Property, ...]:
    r"""Read a file as UTF-8, or as Latin-1 (Java's encoding) where it is not UTF-8."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    if b"\0" in data:
        raise ConfigError(f"{path}: not UTF-8 but perhaps UTF-16; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return parse_properties(text, str(path))


def with_overrides(
    properties: Iterable[Property], overrides: Mapping[str, str] | None
) -> tuple[Property, ...]:
    """Put overrides in the place of lines of the same key."""
    overrides = overrides or {}
    kept = [line for line in properties if line.key not in overrides]
    return (*kept, *(Property(key, value.strip()) for key, value in overrides.items()))


_FREE_TEXTS: Final = ("failover.command", "failover.notifier.arguments", "failover.webhook.url")
_SHELL: Final = re.compile(r"\$\{?[A-Za-z_]\w*\}?")
_SHELL_WITHIN: Final = re.compile(r"""(?:^|[\s,:/="'])\$(?:\{\w+\}|[A-Z_][A-Z0-9_]+\b)""")
_COMMENT: Final = re.compile(r"\s#[\s\w]")
_QUOTED: Final = re.compile(r"""=("(?:\\.|[^"\\])*"|'[^']*')""")
"""Values of a login module."""
_BLANKS: Final = re.compile(r"\s#\s")


def literal_warnings(lines: Iterable[Property], path: str) -> Iterator[str]:
    """Yield a line for each value that is used as written, though it was meant otherwise.

    Of secrets only a value that is nothing but a variable's name counts as one.
    """
    lines = tuple(lines)
    written = {line.key: line.value for line in lines}
    providers = {*split_patterns(written.get(PROVIDERS_KEY, ""))}

    def literal(line: Property) -> Property:
        value = line.replaced or line.value
        rest = _REFERENCE.sub(lambda found: "" if found[1] in providers else found[0], value)
        return replace(line, value=rest)

    for line in map(literal, lines):
        if line.dropped and not line.is_unresolved:
            signs = ", ".join(f"\\{sign}" for sign in line.dropped)
            what = f"the backslash of {signs} and reads {line.value}; to keep it write"
            what = "each single backslash; to keep one write" if is_secret(line.key) else what
            sign = "" if is_secret(line.key) else line.dropped[0]
            yield f"{line.at(path)}: {line.key}: Java drops {what} \\\\{sign}"
        if line.key.endswith(_FREE_TEXTS) or line.key.startswith(SPARK_PREFIX):
            continue
        found = _REFERENCE.search(line.value)
        if found:
            why = f"${{{found[1]}:...}} is not replaced; {_declaration(found[1], written)}"
        elif _is_of_shell(line):
            why = f"a shell's variables are not replaced; use ${{env:NAME}}, {PROVIDERS_KEY} = env"
        elif _has_comment(line):
            why = "# and what follows belong to the value; write a comment on a line of its own"
        else:
            continue
        yield f"{line.at(path)}: {line.key}: {why}"


def _declaration(name: str, written: Mapping[str, str]) -> str:
    """Say how a provider is declared, or which ones there are."""
    named = ", ".join(sorted({*split_patterns(written.get(PROVIDERS_KEY, "")), name}))
    if name in _PROVIDERS or f"{PROVIDERS_KEY}.{name}.class" in written:
        return f"add {PROVIDERS_KEY} = {named}"
    known = ", ".join(one for one in _PROVIDERS if one != "airflow")
    return f"srm has no provider of this name; use one of {known}, and {PROVIDERS_KEY} = NAME"


def _has_comment(line: Property) -> bool:
    found = _BLANKS if is_secret(line.key) else _COMMENT
    return found.search(_QUOTED.sub("", line.value)) is not None


def _is_of_shell(line: Property) -> bool:
    is_whole = is_secret(line.key) and "jaas" not in line.key
    return (_SHELL.fullmatch if is_whole else _SHELL_WITHIN.search)(line.value) is not None


_Provider = Callable[[str, str], str] | ConfigError
Connections = Callable[[str], Mapping[str, str]]
"""Reads an Airflow connection: its extra fields, and ``host``, ``login``, ``password``."""

CONNECTIONS_VARIABLE: Final = "SRM_CONNECTIONS"
"""JSON of the fields of connections, by id: in an environment they are in no command line."""
CONNECTION_KEY: Final = "airflow.connection"
_LOGIN: Final = ("bootstrap.servers", "security.", "sasl.", "ssl.")
_PROVIDERS: Final = {
    "file": "FileConfigProvider",
    "directory": "DirectoryConfigProvider",
    "env": "EnvVarConfigProvider",
    "airflow": "",
}
"""Java's classes by the usual names of their providers."""
_REFERENCE: Final = re.compile(r"\$\{([^}:]+):(?:([^}:]*):)?([^}]+)\}")


def read_given_connection(name: str) -> Mapping[str, str]:
    """Read a connection from the environment, as processes do that a task of Airflow started."""
    try:
        return dict(json.loads(os.environ.get(CONNECTIONS_VARIABLE, "{}"))[name])
    except (ValueError, KeyError, TypeError):
        raise ConfigError(
            f"connection {name} is kept in Airflow, which this process does not run in; use "
            f"tasks of Airflow, or ${{file:PATH:KEY}} instead"
        ) from None


_default_connections: list[Connections] = [read_given_connection]


def read_connections_by(read: Connections) -> None:
    """Let this process read connections in another way from then on."""
    _default_connections[:] = [read]


def resolve_references(
    lines: Iterable[Property],
    path: str,
    connections: Connections | None = None,
) -> tuple[Property, ...]:
    """Replace each reference to a declared provider by the value, each connection by its lines.

    One without a value is a problem of its own, and remains as written.
    """
    read, lines, found = connections or _default_connections[0], tuple(lines), list[Property]()
    providers = _declare(lines, path, read)
    for line in lines:
        with own_problem():
            found += _connection_lines(_with_value(line, path, providers), path, read)
            continue
        # Of a connection, it may be the address that is missing.
        key = line.key.replace(CONNECTION_KEY, "bootstrap.servers")
        found.append(replace(line, key=key, is_unresolved=True))
    return tuple(found)


def _connection_lines(line: Property, path: str, read: Connections) -> Iterable[Property]:
    prefix, key, rest = line.key.rpartition(CONNECTION_KEY)
    if not key or rest or (prefix and not prefix.endswith(".")):
        return (line,)
    with at_place(line.at(path), line.key):
        found = read(line.value)
    return [
        replace(line, key=prefix + name, value=value, replaced=line.value)
        for name, value in found.items()
        if name.startswith(_LOGIN)
    ]


def _with_value(line: Property, path: str, providers: Mapping[str, _Provider]) -> Property:
    def value(match: re.Match[str]) -> str:
        if match[1] not in providers:
            return match[0]
        provider = providers[match[1]]
        if isinstance(provider, ConfigError):
            raise provider
        with at_place(line.at(path), line.key):
            return provider(match[2] or "", match[3])

    if not (providers and _REFERENCE.search(line.value)):
        return line
    return replace(line, value=_REFERENCE.sub(value, line.value), replaced=line.value)


def _declare(lines: tuple[Property, ...], path: str, read: Connections) -> dict[str, _Provider]:
    def from_connection(name: str, field: str) -> str:
        found = read(name)
        if field not in found:
            raise ConfigError(f"connection {name} has no field {field!r}")
        return found[field]

    readers = (_from_file, _from_directory, _from_environment, from_connection)
    known = dict(zip(_PROVIDERS.items(), readers, strict=True))
    written = {line.key: line.value for line in lines}
    providers: dict[str, _Provider] = {}
    for name in split_patterns(written.get(PROVIDERS_KEY, "")):
        java = written.get(f"{PROVIDERS_KEY}.{name}.class", "").rpartition(".")[2]
        for (usual, of_java), provider in known.items():
            if java == of_java if java else name == usual:
                providers[name] = provider
        if name not in providers:
            classes = ", ".join(of_java for _, of_java in known if of_java)
            error = ConfigError(
                f"{path}: {PROVIDERS_KEY} names {name!r}, whose class is not one of {classes}"
            )
            with own_problem():
                raise error
            providers[name] = error
    return providers


def _from_environment(_: str, name: str) -> str:
    if name not in os.environ:
        raise ConfigError(f"environment variable {name} is not set")
    return os.environ[name]


def _from_file(path: str, key: str) -> str:
    found = {line.key: line.value for line in read_properties(Path(path))}
    if key not in found:
        raise ConfigError(f"{path} has no key {key!r}")
    return found[key]


def _from_directory(path: str, name: str) -> str:
    return read_text(Path(path) / name).strip()
