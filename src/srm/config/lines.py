"""Meaning of a file's lines: which one decides a value, and which is a mistake.

Weak to strong: built-in default, no prefix, ``workers.``, ``connectors.``, ``<alias>.``,
``A->B.``. For a flow's keys ``<alias>.`` means the flows that target the alias, as in SRM. Within
one level the more specific line wins (``A.consumer.x`` over ``A.x``), then the later one. A mistake
is an error, a line without effect a warning.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from itertools import permutations, product
from typing import Final, Literal, cast, get_args

from srm.config import keys
from srm.config.model import ClientKind
from srm.config.properties import Property
from srm.config.security import describe_tls_limits
from srm.config.values import shown
from srm.domain.names.policy import split_patterns
from srm.domain.names.topics import Flow

Side = Literal["source", "target"]

_FLOW: Final = re.compile(r"([^.>\s]+?)->([^.\s]+)(?:\.(.+))?")
_CLIENT: Final = re.compile(r"(?:(source|target)\.)?(consumer|producer|admin)\.(?:override\.)?(.+)")
_SIDES: Final = re.compile(r"(source|target)\.(?:cluster\.)?(.+)")


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
    if level is Level.FLOW and keys.find_key(rest) is None:
        rest = rest.removeprefix("worker.")
    if keys.find_key(rest) is not None or rest.startswith((keys.STACK_PREFIX, keys.PROVIDERS_KEY)):
        return Setting(level, scope, rest, line)
    if level is Level.GLOBAL and rest.startswith(keys.SPARK_PREFIX):
        return Setting(level, scope, rest, line)
    return _client_setting(level, scope, rest, line)


def _split_level(key: str, clusters: Iterable[str]) -> tuple[Level, str, str]:
    flow = _FLOW.fullmatch(key)
    if flow:
        return Level.FLOW, f"{flow[1]}->{flow[2]}", flow[3] or "enabled"
    if key in keys.KEYS:
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
    sided = _SIDES.fullmatch(rest) if level is Level.FLOW else None
    readings = [narrowed.groups()] if narrowed else []
    readings += [(sided[1], None, sided[2])] if sided else []
    for side, kind, name in (*readings, (None, None, rest)):
        if name in keys.CLIENT_KEYS:
            of = cast("Side | None", side), cast("ClientKind | None", kind)
            return Setting(level, scope, name, line, is_client=True, kind=of[1], side=of[0])
    return None


def resolve_key(key: keys.ConfigKey, flow: Flow | None, settings: Iterable[Setting]) -> Resolved:
    """Resolve a key for one flow, or for the file where ``flow`` is None."""
    names = (key.name, *key.synonyms, *key.deprecated)
    scopes = {""} if flow is None else {"", flow.target, str(flow)}
    found = sorted(
        (s for s in settings if not s.is_client and s.name in names and s.scope in scopes),
        key=lambda s: s.strength,
    )
    if key.scope == "replication":
        found = [s for s in found if s.level is Level.FLOW]
    default = () if key.default is None else (Candidate("default", key.name, key.default, 0),)
    return Resolved(key.name, (*default, *map(_candidate, found)))


def _candidate(setting: Setting) -> Candidate:
    level = setting.level.name.lower()
    written = setting.written
    return Candidate(f"{level} {setting.scope}".strip(), written.key, written.value, written.line)


def resolve_client(
    alias: str, kind: ClientKind, settings: Iterable[Setting], flow: Flow | None = None
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
    if keys.CLIENT_KEYS[setting.name].users not in {"all", kind}:
        return False
    if setting.level is not Level.FLOW:
        return setting.scope in {"", alias}
    if flow is None or setting.scope != str(flow):
        return False
    if setting.side is not None:
        return alias == (flow.source if setting.side == "source" else flow.target)
    source, target = flow.source, flow.target
    sides = {"consumer": (source,), "producer": (target,), "admin": (source, target)}
    return setting.kind is not None and alias in sides[kind]


_OF_RECORDS: Final = ("transforms", "predicates")


def transforms_refusal(names: str, instead: str = "remove the line") -> str:
    """Say that single message transforms would be lost."""
    return f"records are copied byte for byte, without {names}; {instead} to copy them so"


_PREFIX: Final = ("consumer.", "producer.override.", "producer.", "admin.", "worker.")
_ALIAS: Final = r"[\w-]{1,60}"
_WORD: Final = r"[A-Za-z][A-Za-z0-9]{0,39}"
_NAME: Final = rf"{_WORD}(?:[._-][A-Za-z0-9]{{1,40}})*"
_OF_FLOW: Final = rf"{_ALIAS}->{_ALIAS}(?:\.{_NAME})?"
_KEY: Final = re.compile(rf"{_OF_FLOW}|{_NAME}")
_WITH_BLANKS: Final = re.compile(rf"({_OF_FLOW})\s*[=:\s]\s*(.*)", re.DOTALL)
_NEAR_KEY: Final = re.compile(rf"(?:{_ALIAS}->{_ALIAS}\.)?[\w.-]+")
_SHORTEST: Final = 5
_LONGEST: Final = 120
_OURS: Final = (
    *(name for name, key in keys.KEYS.items() if key.effect),
    *(name for name, key in keys.CLIENT_KEYS.items() if key.librdkafka is not None),
)
"""Names whose misspelling changes what srm does."""


def check_settings(
    classified: Sequence[tuple[Property, Setting | None]],
    clusters: Sequence[str],
    path: str,
    *,
    strict: bool = False,
) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """Return mistakes and warnings in the lines of a file, and how many keys are unknown.

    An unknown key is a mistake where it nearly is one of ours or was written on the command line,
    and with ``strict`` always.
    """
    problems, unknown, seen, warnings = [], [], dict[str, Property](), []
    for line, setting in classified:
        if setting is None or _outside(setting, clusters):
            if problem := _mistake(line, clusters, strict=strict or not line.line):
                problems.append(f"{line.at(path)}: {problem}")
            elif line.key not in seen:
                unknown.append(f"{line.key} (line {line.line}{_foreign(line.key, clusters)})")
        elif setting.name in _OF_RECORDS and line.value:
            problems.append(f"{line.at(path)}: {line.key}: {transforms_refusal(line.value)}")
        elif warning := (_client_warning if setting.is_client else _key_warning)(setting):
            warnings.append(f"{line.at(path)}: {line.key}: {warning}")
        if line.key in seen:
            warnings.append(
                f"{line.at(path)}: {line.key} was already set on line {seen[line.key].line}; "
                "this line counts"
            )
        seen[line.key] = line
    if unknown:
        warnings.append(f"{path}: unknown keys, which have no effect: {', '.join(unknown)}")
    return tuple(problems), tuple(warnings), len(unknown)


def _outside(setting: Setting, clusters: Collection[str]) -> bool:
    """Return whether a line is about a flow that is not between two of the clusters."""
    source, arrow, target = setting.scope.partition("->")
    return bool(arrow) and (source == target or not {source, target} <= {*clusters})


def _mistake(line: Property, clusters: Sequence[str], *, strict: bool) -> str:
    """Say what is wrong with a line, nothing where another program may know its key.

    A line after a forgotten backslash may be part of a private key or a password. So an error names
    only what looks like a key.
    """
    if line.value.startswith("->") or line.key.endswith("->"):
        joined = re.sub(r"\s*->\s*", "->", f"{line.key} {line.value}", count=1)
        if found := _WITH_BLANKS.fullmatch(joined):
            written = f"{found[1]} = {shown(found[1], found[2])}"
            return f"unknown key {line.key}; write a flow without blanks: {written}"
    if (flow := _FLOW.fullmatch(line.key)) and flow[1] == flow[2]:
        return f"{line.key}: a flow has two clusters"
    meant = _with_our_alias(line, clusters)
    prefix, rest = _split_prefixes(line.key, clusters)
    foreign = _foreign(line.key, clusters)
    if not foreign and keys.find_key(rest) is None and (near := _nearest(rest, _OURS)):
        meant = f"{prefix}{near}"
    if meant and len(line.key) <= _LONGEST and _NEAR_KEY.fullmatch(line.key):
        return f"unknown key {line.key}; did you mean {meant}?"
    if not _is_like_a_key(line, rest):
        return (
            "it does not begin with a key, and is not shown; to continue the line before, "
            "end that one with \\"
        )
    if not strict:
        return ""
    return f"unknown key {line.key}{foreign or '; docs/configuration.md lists all keys'}"


def _is_like_a_key(line: Property, rest: str) -> bool:
    if len(line.key) > _LONGEST or not _KEY.fullmatch(line.key):
        return False
    # A word alone on its line may be a password, one with = after it the end of Base64.
    return bool(line.value.strip("=")) or ("." in rest and rest.islower())


def _nearest(name: str, names: Collection[str]) -> str:
    """Return which of the names a name misspells, nothing where it is another name.

    A misspelling is one slip: a letter too many, missing, wrong or misplaced, other separators or
    capitals, or the last word left out (``emit.checkpoints.interval``). Another word
    makes another key, as in Kafka itself (``sync.topic.acls.enabled``).
    """
    slips = _slips(name)
    for other in names if len(name) >= _SHORTEST else ():
        beginning, _, _ = other.rpartition(".")
        if not slips.isdisjoint(_slips(other)) or ("." in name and name == beginning):
            return other
    return ""


@cache
def _slips(name: str) -> frozenset[str]:
    """Return a name without separators, and all that it is without one letter."""
    plain = re.sub(r"[._-]", "", name).lower()
    return frozenset({plain} | {plain[:at] + plain[at + 1 :] for at in range(len(plain))})


def _with_our_alias(line: Property, clusters: Sequence[str]) -> str:
    flow, dot, name = line.key.partition(".")
    source, arrow, target = flow.partition("->")
    aliases = [_our_alias(alias, clusters) for alias in (source, target) if alias]
    written = arrow.join(aliases) + dot + name
    if written == line.key or "" in aliases:
        return ""
    setting = classify(Property(written, ""), clusters)
    return written if setting is not None and not _outside(setting, clusters) else ""


def _our_alias(alias: str, clusters: Sequence[str]) -> str:
    if alias in clusters:
        return alias
    same = [known for known in clusters if known.lower() == alias.lower()]
    return same[0] if same else _nearest(alias, clusters)


def _foreign(key: str, clusters: Collection[str]) -> str:
    """Say of a known key that its cluster is not one of the file's."""
    head, dot, tail = key.partition(".")
    if "->" not in head and not (dot and classify(Property(tail, ""), clusters)):
        return ""
    missing = [alias for alias in head.split("->") if alias not in clusters]
    return f"; {missing[0]} is not among the clusters {', '.join(clusters)}" if missing else ""


def _split_prefixes(key: str, clusters: Sequence[str]) -> tuple[str, str]:
    rest = key
    if "->" in key:
        rest = key.partition("->")[2].partition(".")[2]
    heads = ["workers.", "connectors.", *(f"{alias}." for alias in clusters), *_PREFIX]
    for head in heads:
        rest = rest.removeprefix(head)
    return key.removesuffix(rest), rest


def _client_warning(setting: Setting) -> str:
    client_key = keys.CLIENT_KEYS[setting.name]
    if client_key.librdkafka is None:
        return f"has no meaning here: {client_key.reason}"
    if setting.level is Level.FLOW and setting.kind is None and setting.side is None:
        return (
            "has no effect on a replication; set it for a cluster "
            f"({setting.scope.partition('->')[0]}.{setting.name}) or for its clients "
            f"({setting.scope}.consumer.{setting.name})"
        )
    if limits := describe_tls_limits(setting.name, setting.written.value):
        return limits
    is_quiet = setting.kind == "admin" or setting.written.value.lower() in client_key.quiet
    if is_quiet or not client_key.reason:
        return ""
    return f"does not steer the copy: {client_key.reason}"


def _key_warning(setting: Setting) -> str:
    key = keys.find_key(setting.name)
    if key is None:  # stack. and config.providers keys, which have readers of their own
        return ""
    if not key.effect:
        quiet = setting.written.value.lower() in key.quiet
        return "" if quiet else f"has no meaning here: {key.doc}"
    if setting.name in key.deprecated:
        return f"is an old name; write {setting.prefix()}{key.name}"
    if key.scope == "replication" and setting.level is not Level.FLOW:
        return f"has no effect here; write it for a flow: A->B.{key.name}"
    if key.scope == "file" and setting.level is not Level.GLOBAL:
        return f"has no effect here; write {key.name} without a prefix"
    return _list_warning(setting.written.value) if key.kind in {"list", "regexes"} else ""


def _list_warning(value: str) -> str:
    """Say which signs belong to names of a list, though they were meant around or between them."""
    for entry in split_patterns(value):
        if entry[0] in "\"'" or entry[-1] in "\"'":
            return f"quotes belong to the entry {entry}; remove them"
        if ";" in entry:
            return f"; belongs to the entry {entry}; separate entries by commas"
    return ""


def idle_logins(settings: Collection[Setting], clusters: Sequence[str], path: str) -> Iterator[str]:
    """Yield a line for the settings of a login, or of TLS, that the protocol of no client uses."""
    idle, used = dict[tuple[str, str], dict[str, int]](), set[str]()
    scopes = {s.scope for s in settings if s.is_client}
    flows = [
        None,
        *(Flow(*pair) for pair in permutations(clusters, 2) if "->".join(pair) in scopes),
    ]
    # Of a connection of Airflow that this process cannot read the protocol is unknown.
    unread = {s.scope for s in settings if s.written.is_unresolved and s.name == _ADDRESS}
    for alias, kind, flow in product(clusters, get_args(ClientKind), flows):
        found = resolve_client(alias, kind, settings, flow)
        named = found.pop("security.protocol", None)
        protocol = ((named and named.value) or "PLAINTEXT").upper()
        is_unknown = "${" in protocol or bool(unread & {"", alias})
        for name, resolved in found.items():
            part = next((part for start, part in _NEEDED.items() if name.startswith(start)), "")
            at = resolved.trace[-1]
            if part in protocol or is_unknown:
                used.add(at.key)
            elif at.value:
                idle.setdefault((alias, part), {})[at.key] = at.line
    for (alias, part), lines in idle.items():
        if left := {key: line for key, line in lines.items() if key not in used}:
            yield (
                f"{Property('', '', min(left.values())).at(path)}: {', '.join(left)}: no effect "
                f"without {part} in security.protocol; set {alias}.security.protocol = "
                f"{_EXAMPLES[part]}"
            )


_ADDRESS: Final = "bootstrap.servers"
_EXAMPLES: Final = {"SASL": "SASL_SSL", "SSL": "SSL, or SASL_SSL"}
_NEEDED: Final = {
    **dict.fromkeys(("sasl.mechanism", "sasl.jaas", "sasl.username", "sasl.password"), "SASL"),
    **dict.fromkeys(("ssl.truststore.loc", "ssl.keystore.loc", "ssl.ca.", "ssl.cert"), "SSL"),
}
"""Beginnings of settings with a part of the security protocols that use them."""
