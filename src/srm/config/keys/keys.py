"""Every key of the properties file, read from the table keys.txt.

Client settings (``security.protocol``, ``consumer.fetch.min.bytes`` ...) have names of the Java
clients or of librdkafka. Those with another notation are translated in :mod:`srm.config.security`.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Final, cast

from srm.config.keys.config_key import ClientKey, ConfigKey, Origin, Scope, Users, ValueKind

STACK_PREFIX: Final = "stack."
SPARK_PREFIX: Final = "spark."
PROVIDERS_KEY: Final = "config.providers"


def _read() -> dict[str, list[list[str]]]:
    """Return the rows of the table by section."""
    sections: dict[str, list[list[str]]] = {}
    for line in files("srm.config.keys").joinpath("keys.txt").read_text("utf-8").splitlines():
        if line.startswith("## "):
            sections[line.removeprefix("## ")] = rows = []
        elif line and not line.startswith("#"):
            rows.append(line.split(" | "))
    return sections


_TABLE: Final = _read()


def _keys(section: str, scope: Scope = "flow") -> tuple[ConfigKey, ...]:
    return tuple(_key(*row, usual=scope) for row in _TABLE[section])


def _key(
    name: str, value: str, default: str, origin: str, other: str, doc: str, *, usual: Scope
) -> ConfigKey:
    kind, _, choices = value.partition(": ")
    options: dict[str, list[str]] = {}
    for option, _, text in (word.partition("=") for word in other.split()):
        options.setdefault(option, []).append(text)
    return ConfigKey(
        name,
        cast("ValueKind", kind),
        None if default == "-" else default,
        doc,
        cast("Origin", origin),
        cast("Scope", (options.get("scope") or [usual])[0]),
        (options.get("field") or [""])[0],
        choices=tuple(choices.split(", ")) if choices else (),
        deprecated=tuple(options.get("old", ())),
        synonyms=tuple(options.get("also", ())),
    )


def _without_meaning(*, families: bool) -> Iterator[ConfigKey]:
    for origin, doc, names in _TABLE["without meaning"]:
        for written in names.split():
            name, _, quiet = written.partition("=")
            if name.endswith("*") == families:
                plain, of = name.rstrip("*"), cast("Origin", origin)
                values = (quiet,) if quiet else ()
                yield ConfigKey(plain, "string", None, doc, of, effect=False, quiet=values)


def _client_keys() -> Iterator[ClientKey]:
    for users, reason, names in _TABLE["client"]:
        kind = "all" if users in {"notation", "none"} else users
        for written in names.split():
            renamed, _, quiet = written.partition("=")
            name, _, other = renamed.partition(">")
            librdkafka = None if users == "none" else other or name
            values = tuple(quiet.split(",")) if quiet else ()
            yield ClientKey(name, librdkafka, cast("Users", kind), reason, values)


SERVICE_KEYS: Final = _keys("service", "file")
FILE_KEYS: Final = (*_keys("file", "file"), *SERVICE_KEYS)
FLOW_KEYS: Final = _keys("flow")
MOVE_KEYS: Final = _keys("move")
"""Keys that say how the clients of a move are redirected; the loader makes one value of them."""
RECORD_KEYS: Final = _keys("record")
"""Keys about the treatment of records; the loader makes one value of them."""
CLASS_KEYS: Final = _keys("class")
"""Filters; their defaults are classes of MirrorMaker 2 whose rules the lists follow."""
IGNORED_KEYS: Final = tuple(_without_meaning(families=False))
IGNORED_PREFIXES: Final = tuple(_without_meaning(families=True))
"""Keys of others that have no meaning here, and families of such."""

KEYS: Final = {
    name: key
    for key in (*FILE_KEYS, *FLOW_KEYS, *MOVE_KEYS, *RECORD_KEYS, *CLASS_KEYS, *IGNORED_KEYS)
    for name in (key.name, *key.synonyms, *key.deprecated)
}
"""Every key by each of its names."""

TRANSLATED: Final = tuple(
    name for users, _, names in _TABLE["client"] if users == "notation" for name in names.split()
)
"""Client settings whose notation differs; srm.config.security turns them into librdkafka's."""
CLIENT_KEYS: Final = {key.name: key for key in _client_keys()}
"""Every client setting by the name it is written with."""


def find_key(name: str) -> ConfigKey | None:
    """Return the key of that name, or the family of meaningless keys that it belongs to."""
    if name in KEYS:
        return KEYS[name]
    return next((key for key in IGNORED_PREFIXES if name.startswith(key.name)), None)
