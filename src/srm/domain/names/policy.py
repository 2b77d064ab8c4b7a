"""Replication policies and filters of names, and conformance tests of those that users write.

Rules and names follow MirrorMaker 2's ReplicationPolicy, DefaultTopicFilter and DefaultGroupFilter.
A conformance test is one call in a test of a user::

    def test_our_policy_can_name_topics() -> None:
        check_policy(OurPolicy("P", "."), ["Payments", "orders.eu"])
"""

from __future__ import annotations

import pickle
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from srm.domain.names import java_pattern
from srm.domain.names.internal_topics import HEARTBEATS, is_internal
from srm.errors import ConfigError

PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9._\-]+")


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile one entry of a list, a regular expression of Java; a plain name is one, too."""
    try:
        return re.compile(java_pattern.parse(pattern).python)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"{pattern!r} is not a regular expression: {error}") from None


def pattern_problems(patterns: Iterable[str]) -> Iterator[str]:
    """Yield what is wrong with each entry that does not compile."""
    for pattern in patterns:
        try:
            compile_pattern(pattern)
        except ConfigError as error:
            yield str(error)


def literal(name: str) -> str:
    """Return a pattern that matches only this name, except that a comma becomes a dot."""
    if PLAIN_NAME.fullmatch(name):
        return name
    return re.escape(name).replace(",", ".")


def split_patterns(text: str) -> tuple[str, ...]:
    """Split a comma separated list as MM2 does: no pattern can contain a comma."""
    return tuple(part for part in (part.strip() for part in text.split(",")) if part)


@dataclass(frozen=True, slots=True)
class NameFilter:
    """Include and exclude lists of regular expressions, which match all of a name.

    Without an include pattern no name is selected. ConfigError at construction if a pattern does
    not compile. A filter of your own derives from it, overrides :meth:`matches` and is named
    ``module:Class`` in ``topic.filter.class``, ``group.filter.class`` or
    ``config.property.filter.class``; the lists of srm-control are among its patterns.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in (*self.include, *self.exclude):
            compile_pattern(pattern)

    @property
    def names(self) -> frozenset[str]:
        """Names selected literally, not by a pattern."""
        return frozenset(filter(self.matches, filter(PLAIN_NAME.fullmatch, self.include)))

    def matches(self, name: str) -> bool:
        """Return True if the name is selected."""
        return self.included_by(name) is not None and self.excluded_by(name) is None

    def included_by(self, name: str) -> str | None:
        """Return the first include pattern that matches all of the name, None without a match."""
        return _first_match(self.include, name)

    def excluded_by(self, name: str) -> str | None:
        return _first_match(self.exclude, name)


SHADOW_PREFIX: Final = "srm-drill."
"""Prefix of the groups that a drill creates and removes; clients and flows never use them."""


SHADOWS: Final = re.escape(SHADOW_PREFIX) + ".*"
"""Pattern of these groups, which each filter of groups excludes."""


def _first_match(patterns: Iterable[str], name: str) -> str | None:
    return next((one for one in patterns if compile_pattern(one).fullmatch(name)), None)


class ReplicationPolicy(ABC):
    """Names of remote topics; the methods are of MirrorMaker 2's interface.

    A policy of your own derives from it and is named ``module:Class`` in
    ``replication.policy.class``. The class is called with the alias of the flow's source and the
    separator of MirrorMaker 2's own topics. Its instances are compared and pickled;
    :func:`check_policy` checks the rest.
    """

    separator: str = "."

    @abstractmethod
    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """Return the name on the target of a topic of ``source_alias``."""

    @abstractmethod
    def topic_source(self, topic: str) -> str | None:
        """Return the alias of a remote topic's source, None if it is not a remote topic."""

    @abstractmethod
    def upstream_topic(self, topic: str) -> str | None:
        """Return the name one hop upstream, None if it is not a remote topic."""

    def is_internal_topic(self, topic: str) -> bool:
        """Return True for a topic with state of Kafka, MM2, Connect or srm: never replicated."""
        return is_internal(topic, self.separator)


@dataclass(frozen=True, slots=True)
class DefaultReplicationPolicy(ReplicationPolicy):
    """Policy with the source alias as prefix: ``P.Payments`` on B is P's ``Payments``.

    ``aliases``: those that contain the separator, such as ``us-east`` with ``-``.
    """

    separator: str = "."
    aliases: tuple[str, ...] = field(default=(), kw_only=True)

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{source_alias}{self.separator}{topic}"

    def topic_source(self, topic: str) -> str | None:
        source, separator, _ = topic.partition(self.separator)
        known = (one for one in self.aliases if topic.startswith(f"{one}{self.separator}"))
        return max(known, key=len, default=source if separator else None)

    def upstream_topic(self, topic: str) -> str | None:
        source = DefaultReplicationPolicy.topic_source(self, topic)
        return None if source is None else topic[len(source) + len(self.separator) :]


@dataclass(frozen=True, slots=True)
class IdentityReplicationPolicy(DefaultReplicationPolicy):
    """Policy without prefixes, except of heartbeats: ``Payments`` on B is P's ``Payments``.

    A name does not show whether a topic is a copy: the source of each is the configured one.
    """

    source_alias: str = ""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        if not topic.endswith(HEARTBEATS):
            return topic
        return DefaultReplicationPolicy.format_remote_topic(self, source_alias, topic)

    def topic_source(self, topic: str) -> str | None:
        if not topic.endswith(HEARTBEATS):
            return self.source_alias or None
        return DefaultReplicationPolicy.topic_source(self, topic)

    def upstream_topic(self, topic: str) -> str | None:
        if not topic.endswith(HEARTBEATS):
            return topic
        return DefaultReplicationPolicy.upstream_topic(self, topic)


@dataclass(frozen=True, slots=True)
class RestoringPolicy(ReplicationPolicy):
    """Policy that undoes another one, for copies that return: to it no topic is a remote one."""

    undone: ReplicationPolicy

    @property
    def separator(self) -> str:  # type: ignore[override] # no caller sets it
        return self.undone.separator

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """Return the name of a copy's original; ``source_alias`` is the flow's, not in the name."""
        del source_alias
        return self.undone.upstream_topic(topic) or topic

    def topic_source(self, topic: str) -> str | None:
        del topic
        return None

    def upstream_topic(self, topic: str) -> str | None:
        del topic
        return None


def check_policy(
    policy: ReplicationPolicy, topics: Collection[str], source_alias: str = "P"
) -> None:
    """Raise ConfigError if a policy that was made for a source breaks a rule.

    The name of a copy leads back to its original, and two topics have different copies. Heartbeats
    keep a prefix, or they would be copied in a circle. Pickled policies are equal.
    """
    if pickle.loads(pickle.dumps(policy)) != policy:  # noqa: S301 -- of this process
        raise _broken(policy, "a pickled copy is not equal: make it a frozen dataclass")
    copies: dict[str, str] = {}
    for topic in topics:
        copy = policy.format_remote_topic(source_alias, topic)
        if not PLAIN_NAME.fullmatch(copy):
            raise _broken(policy, f"Kafka refuses the name {copy!r} of a copy")
        if policy.topic_source(copy) != source_alias:
            raise _broken(policy, f"topic_source({copy!r}) is not {source_alias!r}")
        if policy.upstream_topic(copy) != topic:
            raise _broken(policy, f"upstream_topic({copy!r}) is not {topic!r}")
        if copies.setdefault(copy, topic) != topic:
            raise _broken(policy, f"{copies[copy]!r} and {topic!r} have the same copy {copy!r}")
        if policy.is_internal_topic(topic) or policy.is_internal_topic(copy):
            raise _broken(policy, f"{topic!r} or its copy {copy!r} counts as internal")
    beats = policy.format_remote_topic(source_alias, HEARTBEATS)
    if policy.topic_source(beats) != source_alias or policy.upstream_topic(beats) != HEARTBEATS:
        raise _broken(policy, f"heartbeats become {beats!r}, which is not heartbeats of a source")


def check_filter(of: type[NameFilter], selected: Collection[str], refused: Collection[str]) -> None:
    """Raise ConfigError if a class of filters selects a refused name, or misses one."""
    made = of((".*",), (SHADOWS,))
    if pickle.loads(pickle.dumps(made)) != made:  # noqa: S301 -- of this process
        raise _broken(made, "a pickled copy is not equal")
    for name in (*refused, f"{SHADOW_PREFIX}x"):
        if made.matches(name):
            raise _broken(made, f"it selects {name!r}")
    for name in selected:
        if not made.matches(name):
            raise _broken(made, f"it does not select {name!r}")


def _broken(what: object, why: str) -> ConfigError:
    return ConfigError(f"{type(what).__module__}:{type(what).__qualname__}: {why}")
