"""Declarations of keys of the properties file: one row of keys.txt each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

ValueKind = Literal[
    "boolean",
    "count",
    "number",
    "replication factor",
    "seconds",
    "list",
    "regexes",
    "string",
    "choice",
    "cron",
]
"""A ``count`` is 1 or more, a ``number`` may be 0, a ``replication factor`` is a count, or -1 for
the broker's default."""
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
    clients that know it. ``reason`` says why a setting without meaning has none, or what the copy
    does instead of one that only reaches srm's other clients (control topics, offset map).
    ``quiet`` are its values that need no warning, since they say what the copy does anyway.
    """

    name: str
    librdkafka: str | None
    users: Users = "all"
    reason: str = ""
    quiet: tuple[str, ...] = ()
