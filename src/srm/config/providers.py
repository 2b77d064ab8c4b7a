"""Values kept elsewhere: ``${file:PATH:KEY}``, ``${directory:PATH:FILE}`` and ``${env:NAME}``.

The notation of Kafka's FileConfigProvider, DirectoryConfigProvider and EnvVarConfigProvider. A
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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from srm.config.keys.keys import PROVIDERS_KEY
from srm.config.properties import Property, read_properties
from srm.domain.names.policy import split_patterns
from srm.errors import ConfigError

Connections = Callable[[str], Mapping[str, str]]
"""Reads an Airflow connection: its extra fields, and ``host``, ``login``, ``password``."""

CONNECTIONS_VARIABLE: Final = "SRM_CONNECTIONS"
"""JSON of the fields of connections, by id: in an environment they are in no command line."""
CONNECTION_KEY: Final = "airflow.connection"
_LOGIN: Final = ("bootstrap.servers", "security.", "sasl.", "ssl.")
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
    environment: Mapping[str, str] | None = None,
    connections: Connections | None = None,
) -> tuple[Property, ...]:
    """Replace each reference to a declared provider by the value, each connection by its lines."""
    read = connections or _default_connections[0]
    given = os.environ if environment is None else environment
    resolved = _resolve_values(tuple(lines), path, given, read)
    return tuple(found for line in resolved for found in _connection_lines(line, path, read))


def _connection_lines(line: Property, path: str, read: Connections) -> Iterable[Property]:
    """Return the lines that a connection gives; any other line as it is."""
    prefix, key, rest = line.key.rpartition(CONNECTION_KEY)
    if not key or rest or (prefix and not prefix.endswith(".")):
        return (line,)
    try:
        found = read(line.value)
    except ConfigError as error:
        raise ConfigError(f"{line.at(path)}: {line.key}: {error}") from None
    return [
        replace(line, key=prefix + name, value=value)
        for name, value in found.items()
        if name.startswith(_LOGIN)
    ]


def _resolve_values(
    lines: tuple[Property, ...], path: str, environment: Mapping[str, str], read: Connections
) -> tuple[Property, ...]:
    providers = _declare(lines, path, environment, read)
    if not providers:
        return lines

    def looked_up(line: Property) -> Property:
        def value(match: re.Match[str]) -> str:
            if match[1] not in providers:
                return match[0]
            try:
                return providers[match[1]](match[2] or "", match[3])
            except ConfigError as error:
                raise ConfigError(f"{line.at(path)}: {line.key}: {error}") from None

        return replace(line, value=_REFERENCE.sub(value, line.value))

    return tuple(looked_up(line) for line in lines)


def _declare(
    lines: tuple[Property, ...], path: str, environment: Mapping[str, str], read: Connections
) -> dict[str, Callable[[str, str], str]]:
    def from_connection(name: str, field: str) -> str:
        found = read(name)
        if field not in found:
            raise ConfigError(f"connection {name} has no field {field!r}")
        return found[field]

    def from_environment(_: str, name: str) -> str:
        if name not in environment:
            raise ConfigError(f"environment variable {name} is not set")
        return environment[name]

    known: dict[str, Callable[[str, str], str]] = {
        "FileConfigProvider": _from_file,
        "DirectoryConfigProvider": _from_directory,
        "EnvVarConfigProvider": from_environment,
    }
    usual = {"file": _from_file, "directory": _from_directory, "env": from_environment}
    usual["airflow"] = from_connection
    written = {line.key: line.value for line in lines}
    providers: dict[str, Callable[[str, str], str]] = {}
    for name in split_patterns(written.get(PROVIDERS_KEY, "")):
        java_class = written.get(f"{PROVIDERS_KEY}.{name}.class", "")
        provider = known.get(java_class.rpartition(".")[2]) if java_class else usual.get(name)
        if provider is None:
            raise ConfigError(
                f"{path}: {PROVIDERS_KEY} names {name!r}, whose class is not one of "
                f"{', '.join(known)}"
            )
        providers[name] = provider
    return providers


def _from_file(path: str, key: str) -> str:
    found = {line.key: line.value for line in read_properties(Path(path))}
    if key not in found:
        raise ConfigError(f"{path} has no key {key!r}")
    return found[key]


def _from_directory(path: str, name: str) -> str:
    try:
        return (Path(path) / name).read_text("utf-8").strip()
    except OSError as error:
        raise ConfigError(f"{Path(path) / name} cannot be read ({error.strerror})") from None
