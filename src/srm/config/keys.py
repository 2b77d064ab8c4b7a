"""Every key of the properties file, read from the table keys.txt.

Client settings (``security.protocol``, ``consumer.fetch.min.bytes`` ...) have names of the Java
clients or of librdkafka. Those with another notation are translated in :mod:`srm.config.security`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, Literal, cast

ValueKind = Literal[
    "boolean",
    "number",
    "replication factor",
    "seconds",
    "list",
    "regexes",
    "string",
    "choice",
    "cron",
]
"""A ``number`` has a range as its one choice; a ``replication factor`` of -1 is the broker's."""
Origin = Literal["mm2", "srm", "replicator", "connect", "ours"]
"""MirrorMaker 2, Streams Replication Manager, Confluent Replicator, Kafka Connect, or this srm."""
Scope = Literal["file", "flow", "replication"]
"""``file``: without a prefix only; ``flow``: at every level; ``replication``: ``A->B.`` only."""
Users = Literal["all", "consumer", "producer"]


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key: its values, its default as written in a file, its scopes and its meaning.

    ``attribute`` names the field of FlowConfig that it sets where :attr:`field` would not.
    ``deprecated`` are older names with the same meaning; they are accepted with a warning.
    ``synonyms`` are names that are accepted silently. A key with ``effect`` False is understood
    and answered with a warning: it has no meaning here, and ``doc`` says why. ``quiet`` are values
    of it that need no warning, because they match the behaviour.
    """

    name: str
    kind: ValueKind
    default: str | None
    doc: str
    origin: Origin = "mm2"
    scope: Scope = "flow"
    attribute: str = ""
    choices: tuple[str, ...] = ()
    deprecated: tuple[str, ...] = ()
    synonyms: tuple[str, ...] = ()
    effect: bool = True
    quiet: tuple[str, ...] = ()

    @property
    def field(self) -> str:
        """The field that the key sets, if there is one: its name, without the unit of seconds."""
        return self.attribute or re.sub(r"[.-]", "_", self.name).removesuffix("_seconds")


@dataclass(frozen=True, slots=True)
class ClientKey:
    """One client setting of the Java clients or librdkafka.

    ``librdkafka`` is its name there, None where it has no meaning here. ``users`` are the kinds of
    clients that know it. ``reason`` says why a setting without meaning has none, or what srm does
    instead of one that only reaches applications which use the file.
    ``quiet`` are its values that need no warning, since they say what the copy does anyway.
    """

    name: str
    librdkafka: str | None
    users: Users = "all"
    reason: str = ""
    quiet: tuple[str, ...] = ()


STACK_PREFIX: Final = "stack."
SPARK_PREFIX: Final = "spark."
PROVIDERS_KEY: Final = "config.providers"


def _read() -> dict[str, list[list[str]]]:
    sections: dict[str, list[list[str]]] = {}
    for line in files("srm.config").joinpath("keys.txt").read_text("utf-8").splitlines():
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
