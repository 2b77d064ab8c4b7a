"""Limits of clusters: what clients of a source may bring, and what a target's brokers admit."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from srm.domain.text.amount import Finding, amount, some, warning

TARGET_LIMITS: Final = "target-limits"
LIMITS_UNKNOWN: Final = "limits-unknown"
"""Finding of limits that srm may not see; no reason to refuse or to prompt."""
CLIENT_DEFAULTS: Final[Mapping[str, str]] = {
    "group.max.session.timeout.ms": "45000",
    "group.min.session.timeout.ms": "45000",
    "transaction.max.timeout.ms": "60000",
}
"""What clients bring by default, where the limits of their cluster are not known."""

_JOIN: Final = "members with a {} session.timeout.ms cannot join"
_MEMBERS: Final = "further members of a larger group cannot join"
_GROUP: Final = "groups with a {} {}.session.timeout.ms get this one"
_MOST: Final = (
    ("classic", "group.max.session.timeout.ms", _JOIN.format("longer")),
    ("classic", "group.max.size", _MEMBERS),
    ("consumer", "group.consumer.max.session.timeout.ms", _GROUP.format("longer", "consumer")),
    ("consumer", "group.consumer.max.size", _MEMBERS),
    ("share", "group.share.max.session.timeout.ms", _GROUP.format("longer", "share")),
    ("share", "group.share.max.size", _MEMBERS),
    ("streams", "group.streams.max.session.timeout.ms", _GROUP.format("longer", "streams")),
    ("streams", "group.streams.max.size", _MEMBERS),
    ("", "transaction.max.timeout.ms", "producers with a longer transaction.timeout.ms fail"),
    ("", "offsets.retention.minutes", "offsets of groups without members expire earlier"),
)
_LEAST: Final = (
    ("classic", "group.min.session.timeout.ms", _JOIN.format("shorter")),
    ("consumer", "group.consumer.min.session.timeout.ms", _GROUP.format("shorter", "consumer")),
    ("share", "group.share.min.session.timeout.ms", _GROUP.format("shorter", "share")),
    ("streams", "group.streams.min.session.timeout.ms", _GROUP.format("shorter", "streams")),
)
_FEATURES: Final = {"consumer": "group.version"}

Quotas = Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float]]
"""Limits by their keys, by types and names of what they limit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one cluster for its clients.

    ``configs``: of its brokers, which leave out what they do not have; empty if not known.
    ``kinds``: the group protocols that it admits.
    ``sizes``: ``max.message.bytes`` by topic. ``quotas``: None if not known.
    """

    alias: str
    configs: Mapping[str, str] = field(default_factory=dict)
    kinds: Collection[str] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    quotas: Quotas | None = None


def target_limits(
    source: Limits | None, target: Limits, groups: Mapping[str, Collection[str]]
) -> Iterator[Finding]:
    """Yield what clients of the source may bring, and the brokers of the target refuse.

    ``source``: None for a lost one; then clients bring their defaults.
    ``groups``: those that move, by their group protocol; limits of these protocols count.
    """
    for one in filter(None, (source, target)):
        if not one.configs:
            yield warning(
                LIMITS_UNKNOWN,
                f"limits of {one.alias} for clients are not compared: srm lacks DescribeConfigs on "
                f"the cluster",
            )
    yield from _protocols(target, groups)
    here = source.configs if source and source.configs else CLIENT_DEFAULTS
    where = f"on {source.alias}" if source and source.configs else "by default in clients"
    used = {"", *groups}
    for rules, sign in ((_MOST, 1), (_LEAST, -1)):
        for _, key, effect in (rule for rule in rules if rule[0] in used):
            ours, theirs = _number(here.get(key)), _number(target.configs.get(key))
            if ours is not None and theirs is not None and sign * theirs < sign * ours:
                text = f"{key} is {theirs} on {target.alias} and {ours} {where}: {effect}"
                yield warning(TARGET_LIMITS, text, f"set it on {target.alias}")
    if source is not None:
        yield from _sizes(source, target)
        yield from _quotas(source, target)


def _number(value: str | None) -> int | None:
    return int(value) if value and value.lstrip("-").isdecimal() else None


def _protocols(target: Limits, groups: Mapping[str, Collection[str]]) -> Iterator[Finding]:
    for kind, names in sorted(groups.items()):
        if names and kind not in {"classic", "other", *target.kinds}:
            feature = _FEATURES.get(kind, f"{kind}.version")
            yield warning(
                TARGET_LIMITS,
                f"{amount(len(names), 'group')} ({some(sorted(names))}) with the {kind} group "
                f"protocol, which {target.alias} does not admit: members fail there",
                f"add {kind} to group.coordinator.rebalance.protocols there, with feature "
                f"{feature}, or leave them out with --exclude-group",
            )


def _sizes(source: Limits, target: Limits) -> Iterator[Finding]:
    broker = _number(target.configs.get("message.max.bytes"))
    for topic, ours in sorted(source.sizes.items()):
        theirs = target.sizes.get(topic, broker)
        if theirs is not None and theirs < ours:
            yield warning(
                TARGET_LIMITS,
                f"max.message.bytes of topic {topic} is {theirs} on {target.alias} and {ours} on "
                f"{source.alias}: producers cannot write larger records there",
                f"set it on {target.alias}",
            )


def _quotas(source: Limits, target: Limits) -> Iterator[Finding]:
    if source.quotas is None or target.quotas is None:
        return
    for entity, limits in sorted(target.quotas.items(), key=str):
        known = source.quotas.get(entity, {})
        name = ", ".join(f"{kind} {one or '(default)'}" for kind, one in entity)
        for key, theirs in sorted(limits.items()):
            if theirs < (ours := known.get(key, math.inf)):
                before = "none" if ours == math.inf else f"{ours:g}"
                yield warning(
                    TARGET_LIMITS,
                    f"quota {key} of {name} is {theirs:g} on {target.alias} and {before} on "
                    f"{source.alias}: clients are throttled",
                    f"set it on {target.alias}",
                )
