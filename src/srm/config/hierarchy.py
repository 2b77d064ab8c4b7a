"""Precedence: which line of the file decides a value, and which lines it overruled.

Weak to strong: built-in default, no prefix, ``workers.``, ``connectors.``, ``<alias>.``,
``A->B.``. For a flow's keys ``<alias>.`` means the flows that target the alias, as in SRM. Within
one level the more specific line wins (``A.consumer.x`` over ``A.x``), then the later one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal

from srm.config.keys.config_key import ConfigKey
from srm.config.keys.keys import (
    CLIENT_KEYS,
    KEYS,
    PROVIDERS_KEY,
    SPARK_PREFIX,
    STACK_PREFIX,
    find_key,
)
from srm.config.model import ClientKind
from srm.config.properties import Property
from srm.config.secrets import shown
from srm.domain.names.topics import Flow

Side = Literal["source", "target"]

_FLOW: Final = re.compile(r"([^.>\s]+?)->([^.\s]+)(?:\.(.+))?")
_CLIENT: Final = re.compile(r"(?:(source|target)\.)?(consumer|producer|admin)\.(?:override\.)?(.+)")
_SIDES: Final = re.compile(r"(source|target)\.(?:cluster\.)?(.+)")
_KINDS: Final[dict[str, ClientKind]] = {
    "consumer": "consumer",
    "producer": "producer",
    "admin": "admin",
}
_SIDE_NAMES: Final[dict[str, Side]] = {"source": "source", "target": "target"}


class Level(IntEnum):
    """Place of a value, weak to strong."""

    DEFAULT = 0
    GLOBAL = 1
    WORKERS = 2
    CONNECTORS = 3
    ALIAS = 4
    FLOW = 5


@dataclass(frozen=True, slots=True)
class Setting:
    """One parsed line of the file.

    ``name`` is the key without its prefixes. ``scope`` is the alias or the flow that the prefix
    names. ``kind`` and ``side`` narrow a client setting; ``is_client`` marks one.
    """

    level: Level
    scope: str
    name: str
    written: Property
    is_client: bool = False
    kind: ClientKind | None = None
    side: Side | None = None

    @property
    def strength(self) -> tuple[int, int, int]:
        """Sort key, weak to strong."""
        specific = (self.kind is not None) + 2 * (self.side is not None)
        # An override, on line 0, counts as a line that was written last.
        return self.level, specific, self.written.line or sys.maxsize

    def prefix(self) -> str:
        """The part of the line's key before ``name``."""
        return self.written.key.removesuffix(self.name)


@dataclass(frozen=True, slots=True, repr=False)
class Candidate:
    """One value that was considered: its level, the key as written, and the line (0: none)."""

    level: str
    key: str
    value: str
    line: int

    def __repr__(self) -> str:
        value = shown(self.key, self.value)
        return f"Candidate({self.level!r}, {self.key!r}, {value!r}, {self.line})"


@dataclass(frozen=True, slots=True)
class Resolved:
    """A value with its trace, weak to strong; the last candidate decided."""

    name: str
    trace: tuple[Candidate, ...]

    @property
    def value(self) -> str | None:
        """The value that counts, None where neither a line nor a default gives one."""
        return self.trace[-1].value if self.trace else None


def classify(line: Property, clusters: Iterable[str]) -> Setting | None:
    """Split a line's key into prefixes (of any flow) and name; None for no known key."""
    level, scope, rest = _split_level(line.key, clusters)
    if level is Level.FLOW and find_key(rest) is None:
        rest = rest.removeprefix("worker.")
    if find_key(rest) is not None or rest.startswith((STACK_PREFIX, PROVIDERS_KEY)):
        return Setting(level, scope, rest, line)
    if level is Level.GLOBAL and rest.startswith(SPARK_PREFIX):
        return Setting(level, scope, rest, line)
    return _client_setting(level, scope, rest, line)


def _split_level(key: str, clusters: Iterable[str]) -> tuple[Level, str, str]:
    flow = _FLOW.fullmatch(key)
    if flow:
        return Level.FLOW, f"{flow[1]}->{flow[2]}", flow[3] or "enabled"
    if key in KEYS:
        return Level.GLOBAL, "", key
    for alias in clusters:
        if key.startswith(f"{alias}."):
            return Level.ALIAS, alias, key.removeprefix(f"{alias}.")
    for prefix, level in (("workers.", Level.WORKERS), ("connectors.", Level.CONNECTORS)):
        if key.startswith(prefix):
            return level, "", key.removeprefix(prefix)
    return Level.GLOBAL, "", key


def _client_setting(level: Level, scope: str, rest: str, line: Property) -> Setting | None:
    narrowed = _CLIENT.fullmatch(rest)
    if narrowed and narrowed[3] in CLIENT_KEYS:
        return Setting(
            level,
            scope,
            narrowed[3],
            line,
            is_client=True,
            kind=_KINDS[narrowed[2]],
            side=_SIDE_NAMES.get(narrowed[1] or ""),
        )
    sided = _SIDES.fullmatch(rest) if level is Level.FLOW else None
    if sided and sided[2] in CLIENT_KEYS:
        side = _SIDE_NAMES[sided[1]]
        return Setting(level, scope, sided[2], line, is_client=True, side=side)
    if rest in CLIENT_KEYS:
        return Setting(level, scope, rest, line, is_client=True)
    return None


def resolve_key(key: ConfigKey, flow: Flow | None, settings: Iterable[Setting]) -> Resolved:
    """Resolve a key for one flow, or for the file where ``flow`` is None."""
    names = (key.name, *key.synonyms, *key.deprecated)
    scopes = {""} if flow is None else {"", flow.target, str(flow)}
    found = sorted(
        (s for s in settings if not s.is_client and s.name in names and s.scope in scopes),
        key=lambda s: s.strength,
    )
    if key.scope == "replication":
        found = [s for s in found if s.level is Level.FLOW]
    return Resolved(key.name, (*_default(key), *map(_candidate, found)))


def _default(key: ConfigKey) -> tuple[Candidate, ...]:
    if key.default is None:
        return ()
    return (Candidate("default", key.name, key.default, 0),)


def _candidate(setting: Setting) -> Candidate:
    level = setting.level.name.lower()
    written = setting.written
    return Candidate(f"{level} {setting.scope}".strip(), written.key, written.value, written.line)


def resolve_client(
    alias: str,
    kind: ClientKind,
    settings: Iterable[Setting],
    flow: Flow | None = None,
) -> dict[str, Resolved]:
    """Resolve every setting of one kind of client of one cluster, by the name it is written with.

    In the order of the deciding lines, weak to strong.

    With a flow the lines of that replication count too: its ``consumer.`` lines reach the
    consumer on its source, its ``producer.`` lines the producer on its target, its ``admin.``
    lines both (MirrorConnectorConfig), and ``source.`` or ``target.`` names the side itself.
    """
    lines = sorted(
        (s for s in settings if s.is_client and _reaches(s, alias, kind, flow)),
        key=lambda s: s.strength,
    )
    resolved: dict[str, Resolved] = {}
    for line in lines:
        # Taken out and put in again: the order is that of the deciding lines, weak to strong.
        earlier = resolved.pop(line.name, None)
        trace = earlier.trace if earlier is not None else ()
        resolved[line.name] = Resolved(line.name, (*trace, _candidate(line)))
    return resolved


def _reaches(setting: Setting, alias: str, kind: ClientKind, flow: Flow | None) -> bool:
    if setting.kind not in {None, kind}:
        return False
    if CLIENT_KEYS[setting.name].users not in {"all", kind}:
        return False
    if setting.level is not Level.FLOW:
        return setting.scope in {"", alias}
    if flow is None or setting.scope != str(flow):
        return False
    if setting.side is not None:
        return alias == (flow.source if setting.side == "source" else flow.target)
    sides = {"consumer": {flow.source}, "producer": {flow.target}, "admin": {*_aliases(flow)}}
    return setting.kind is not None and alias in sides[kind]


def _aliases(flow: Flow) -> tuple[str, str]:
    return flow.source, flow.target
