"""Values kept elsewhere: ``${file:PATH:KEY}``, ``${directory:PATH:FILE}`` and ``${env:NAME}``.

The notation of Kafka's FileConfigProvider, DirectoryConfigProvider and EnvVarConfigProvider. A
provider must be declared as for Kafka (``config.providers = file``), by its class where it has
another name than these.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from srm.config.keys.keys import PROVIDERS_KEY
from srm.config.properties import Property, read_properties
from srm.domain.names.filters import split_patterns
from srm.errors import ConfigError

_REFERENCE: Final = re.compile(r"\$\{([^}:]+):(?:([^}:]*):)?([^}]+)\}")


def resolve_references(
    lines: Iterable[Property], path: str, environment: Mapping[str, str] | None = None
) -> tuple[Property, ...]:
    """Replace each reference to a declared provider by the value it names.

    Raises:
        ConfigError: a declared provider has no such value, or its class is not one of Kafka's.
    """
    lines = tuple(lines)
    providers = _declare(lines, path, os.environ if environment is None else environment)
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
    lines: tuple[Property, ...], path: str, environment: Mapping[str, str]
) -> dict[str, Callable[[str, str], str]]:
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
