"""Which names a flow selects: MirrorMaker 2's DefaultTopicFilter and DefaultGroupFilter."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

from srm.domain.policy import DefaultReplicationPolicy
from srm.domain.topics import Flow
from srm.errors import ConfigError

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9._\-]+")


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile one entry of a list; a plain name is a pattern too.

    Raises:
        ConfigError: it is not a regular expression.
    """
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{pattern!r} is not a regular expression: {error}") from None


def split_patterns(text: str) -> tuple[str, ...]:
    """Split a comma separated list as MM2 does: no pattern can contain a comma."""
    return tuple(part for part in (part.strip() for part in text.split(",")) if part)


@dataclass(frozen=True, slots=True)
class NameFilter:
    """An include and an exclude list of regular expressions.

    A name is selected when an include pattern matches all of it and no exclude pattern does.
    Without an include pattern nothing is selected.

    Raises:
        ConfigError: at construction, where a pattern does not compile.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in (*self.include, *self.exclude):
            compile_pattern(pattern)

    @property
    def names(self) -> frozenset[str]:
        """What is selected by its name, not by a pattern."""
        return frozenset(filter(self.matches, filter(_PLAIN_NAME.fullmatch, self.include)))

    def matches(self, name: str) -> bool:
        """Whether the name is selected."""
        return _any_matches(self.include, name) and not _any_matches(self.exclude, name)


SHADOW_PREFIX: Final = "srm-drill."
"""Groups that a drill makes and removes: they are nobody's, and never carried over."""


def group_filter(include: tuple[str, ...], exclude: tuple[str, ...]) -> NameFilter:
    """Return which groups a flow selects; never those that a drill makes."""
    return NameFilter(include, (*exclude, re.escape(SHADOW_PREFIX) + ".*"))


def _any_matches(patterns: Iterable[str], name: str) -> bool:
    return any(compile_pattern(pattern).fullmatch(name) for pattern in patterns)


class ReplicationRules(Protocol):
    """What the choice of topics needs of a flow's settings; FlowConfig has it."""

    @property
    def flow(self) -> Flow:
        """The flow."""
        ...

    @property
    def policy(self) -> DefaultReplicationPolicy:
        """How remote topics are named."""
        ...

    @property
    def heartbeats_replication_enabled(self) -> bool:
        """Whether heartbeats topics are copied without being listed."""
        ...


def should_replicate_topic(name: str, rules: ReplicationRules, topic_filter: NameFilter) -> bool:
    """Whether a topic of the source is copied (MirrorSourceConnector.shouldReplicateTopic).

    Selected, or a heartbeats topic; never an internal topic, and never one that has already
    passed through the flow's target.
    """
    policy = rules.policy
    if policy.is_internal_topic(name) or policy.is_cycle(name, rules.flow.target):
        return False
    heartbeats = rules.heartbeats_replication_enabled and policy.is_heartbeats_topic(name)
    return heartbeats or topic_filter.matches(name)
