"""Declaration of a key of the properties file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

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
Scope = Literal["file", "flow", "replication"]
"""``file``: without a prefix only; ``flow``: at every level; ``replication``: ``A->B.`` only."""


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key: its values, its default as written in a file, its scopes and its meaning.

    ``attribute`` names the field of FlowConfig that it sets where :attr:`field` would not.
    ``deprecated`` are older names with the same meaning; they are accepted with a warning.
    ``synonyms`` are names that are accepted silently. ``quiet`` are values without effect that
    need no warning, because they match the behaviour.
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


our_key: Final = partial(ConfigKey, origin="ours")
our_file_key: Final = partial(ConfigKey, origin="ours", scope="file")
