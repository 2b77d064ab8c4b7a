"""Judging the lines of a properties file: unknown keys are errors, lost ones are warnings."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Final

from srm.config.client_keys import BESIDE_THE_COPY, CLIENT_KEYS, QUIET_VALUES
from srm.config.hierarchy import Level, Setting
from srm.config.keys import KEYS, find_key
from srm.config.properties import Property
from srm.config.secrets import shown
from srm.errors import ConfigError

_PREFIX: Final = ("consumer.", "producer.override.", "producer.", "admin.", "worker.")
_SHOWN: Final = 3
_ALIAS: Final = r"[\w-]{1,60}"
_FLOW: Final = re.compile(rf"{_ALIAS}->{_ALIAS}\.")
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*")
_NEAR_NAME: Final = re.compile(r"[\w.-]+")
_LONGEST: Final = 120


def check_settings(
    classified: Sequence[tuple[Property, Setting | None]], clusters: Sequence[str], path: str
) -> tuple[str, ...]:
    """Return the warnings about the lines of a file.

    Raises:
        ConfigError: a line's key is unknown, or names a cluster that is not listed.
    """
    problems = [
        problem
        for line, setting in classified
        if (problem := _problem(line, setting, clusters, path)) is not None
    ]
    if problems:
        more = len(problems) - _SHOWN
        rest = f"; and {more} more" if more > 0 else ""
        raise ConfigError("; ".join(problems[:_SHOWN]) + rest)
    seen: dict[str, Property] = {}
    warnings = []
    for line, setting in classified:
        if line.key in seen:
            warnings.append(
                f"{line.at(path)}: {line.key} was already set on line {seen[line.key].line}; "
                "this line counts"
            )
        seen[line.key] = line
        warning = _warning(setting) if setting is not None else ""
        if warning:
            warnings.append(f"{line.at(path)}: {line.key}: {warning}")
    return tuple(warnings)


def _problem(
    line: Property, setting: Setting | None, clusters: Sequence[str], path: str
) -> str | None:
    if setting is None:
        return f"{line.at(path)}: {_unknown(line, clusters)}"
    if setting.level is Level.FLOW:
        source, _, target = setting.scope.partition("->")
        missing = [alias for alias in (source, target) if alias not in clusters]
        if missing or source == target:
            return (
                f"{line.at(path)}: {line.key} is no flow between two of the clusters "
                f"{', '.join(clusters)}"
            )
    return None


def _unknown(line: Property, clusters: Sequence[str]) -> str:
    """Say what is wrong with a line whose key is unknown, and what to do.

    Where a backslash at the end of a line is forgotten, the next one is read as a key: a part of a
    private key, or a password. So only what looks like a key is named.
    """
    if line.value.startswith("->"):
        text = f"{line.key}{line.value.replace('-> ', '->', 1)}"
        key, value = (part.strip() for part in text.partition("=")[::2])
        if _may_be_named(Property(key, value), clusters, near=""):
            written = f"{key} = {shown(key, value)}"
            return f"unknown key {line.key}; write a flow without blanks: {written}"
    prefix, rest = _split_prefixes(line.key, clusters)
    head, dot, tail = rest.partition(".")
    if dot and not prefix and _is_known(tail) and re.fullmatch(_ALIAS, head):
        missing = f"{head} is not among the clusters {', '.join(clusters)}"
        return f"unknown key {line.key}; {missing}"
    near = "".join(difflib.get_close_matches(rest, [*KEYS, *CLIENT_KEYS], n=1, cutoff=0.6))
    if not _may_be_named(line, clusters, near):
        return (
            "it begins with no key, and is not shown; where it goes on from the line before, "
            "that one has to end with \\"
        )
    if near:
        return f"unknown key {line.key}; did you mean {prefix}{near}?"
    return f"unknown key {line.key}; docs/configuration.md lists all keys"


def _may_be_named(line: Property, clusters: Sequence[str], near: str) -> bool:
    """Whether a line's unknown key looks like one; ``near``: the known key that it resembles."""
    prefix, rest = _split_prefixes(line.key, clusters)
    if len(line.key) > _LONGEST or ("->" in prefix and not _FLOW.match(prefix)):
        return False
    if near:
        return _NEAR_NAME.fullmatch(rest) is not None
    # A word alone on its line may be a password, one with = behind it the end of Base64.
    has_value = bool(line.value.strip("="))
    return _NAME.fullmatch(rest) is not None and (has_value or "." in rest)


def _is_known(name: str) -> bool:
    return find_key(name) is not None or name in CLIENT_KEYS


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
    return _beside_the_copy(setting)


def _beside_the_copy(setting: Setting) -> str:
    """Answer a setting that users expect to steer the copy, where it does not."""
    name, value = setting.name, setting.written.value.lower()
    reason = BESIDE_THE_COPY.get(name, "")
    if not reason or setting.kind == "admin" or value in QUIET_VALUES.get(name, ()):
        return ""
    return f"does not steer the copy: {reason}"


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
