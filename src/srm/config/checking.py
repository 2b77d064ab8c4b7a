"""Judging the lines of a file: a mistake is an error, a line without effect a warning."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import cache
from typing import Final

from srm.config.hierarchy import Level, Setting, classify
from srm.config.keys.keys import CLIENT_KEYS, KEYS, find_key
from srm.config.properties import Property
from srm.config.secrets import shown
from srm.config.security import describe_tls_limits
from srm.errors import ConfigError

_PREFIX: Final = ("consumer.", "producer.override.", "producer.", "admin.", "worker.")
_SHOWN: Final = 3
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
    *(name for name, key in KEYS.items() if key.effect),
    *(name for name, key in CLIENT_KEYS.items() if key.librdkafka is not None),
)
"""Names whose misspelling changes what srm does."""


def check_settings(
    classified: Sequence[tuple[Property, Setting | None]],
    clusters: Sequence[str],
    path: str,
    *,
    strict: bool = False,
) -> tuple[tuple[str, ...], int]:
    """Return the warnings about the lines of a file, and how many keys are unknown.

    Raises:
        ConfigError: a line is a mistake. An unknown key is one where it nearly is one of ours or
            was written on the command line, and with ``strict`` always.
    """
    problems, unknown, seen, warnings = [], [], dict[str, Property](), []
    for line, setting in classified:
        if setting is None or _outside(setting, clusters):
            if problem := _mistake(line, clusters, strict=strict or not line.line):
                problems.append(f"{line.at(path)}: {problem}")
            elif line.key not in seen:
                unknown.append(f"{line.key} (line {line.line}{_stranger(line.key, clusters)})")
        elif warning := _warning(setting):
            warnings.append(f"{line.at(path)}: {line.key}: {warning}")
        if line.key in seen:
            warnings.append(
                f"{line.at(path)}: {line.key} was already set on line {seen[line.key].line}; "
                "this line counts"
            )
        seen[line.key] = line
    if problems:
        more = len(problems) - _SHOWN
        rest = f"; and {more} more" if more > 0 else ""
        raise ConfigError("; ".join(problems[:_SHOWN]) + rest)
    if unknown:
        warnings.append(f"{path}: unknown keys, which have no effect: {', '.join(unknown)}")
    return tuple(warnings), len(unknown)


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
    meant = _with_our_alias(line, clusters)
    prefix, rest = _split_prefixes(line.key, clusters)
    stranger = _stranger(line.key, clusters)
    if not stranger and find_key(rest) is None and (near := _nearest(rest, _OURS)):
        meant = f"{prefix}{near}"
    if meant and len(line.key) <= _LONGEST and _NEAR_KEY.fullmatch(line.key):
        return f"unknown key {line.key}; did you mean {meant}?"
    if not _is_like_a_key(line, rest):
        return (
            "it begins with no key, and is not shown; where it continues the line before, "
            "that one has to end with \\"
        )
    if not strict:
        return ""
    return f"unknown key {line.key}{stranger or '; docs/configuration.md lists all keys'}"


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
    """Return a known key whose cluster is nearly one of ours as it was meant, else nothing."""
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


def _stranger(key: str, clusters: Collection[str]) -> str:
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


def _warning(setting: Setting) -> str:
    return _client_warning(setting) if setting.is_client else _key_warning(setting)


def _client_warning(setting: Setting) -> str:
    client_key = CLIENT_KEYS[setting.name]
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
    key = find_key(setting.name)
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
    return ""
