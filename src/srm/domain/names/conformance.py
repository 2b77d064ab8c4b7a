"""Conformance tests of policies and filters that users write; each is one call in a test of theirs.

Example::

    def test_our_policy_can_name_topics() -> None:
        check_policy(OurPolicy("P", "."), ["Payments", "orders.eu"])
"""

from __future__ import annotations

import pickle
from collections.abc import Collection

from srm.domain.names.filters import SHADOW_PREFIX, SHADOWS, NameFilter
from srm.domain.names.internal_topics import HEARTBEATS
from srm.domain.names.policy import ReplicationPolicy
from srm.errors import ConfigError


def check_policy(
    policy: ReplicationPolicy, topics: Collection[str], source_alias: str = "P"
) -> None:
    """Check what srm needs of a policy that was made for a source.

    The name of a copy leads back to its original, and two topics have different copies. Heartbeats
    keep a prefix, or they would be copied in a circle. Replicators on other machines get an equal
    policy.

    Raises:
        ConfigError: the policy breaks a rule; the message names it.
    """
    if pickle.loads(pickle.dumps(policy)) != policy:  # noqa: S301 -- of this process
        raise _broken(policy, "a pickled copy is not equal: make it a frozen dataclass")
    copies: dict[str, str] = {}
    for topic in topics:
        copy = policy.format_remote_topic(source_alias, topic)
        if policy.topic_source(copy) != source_alias:
            raise _broken(policy, f"topic_source({copy!r}) is not {source_alias!r}")
        if policy.upstream_topic(copy) != topic:
            raise _broken(policy, f"upstream_topic({copy!r}) is not {topic!r}")
        if copies.setdefault(copy, topic) != topic:
            raise _broken(policy, f"{copies[copy]!r} and {topic!r} have the same copy {copy!r}")
        if policy.is_internal_topic(topic) or policy.is_internal_topic(copy):
            raise _broken(policy, f"{topic!r} or its copy {copy!r} counts as internal")
    beats = policy.format_remote_topic(source_alias, HEARTBEATS)
    if beats == HEARTBEATS or not policy.is_heartbeats_topic(beats):
        raise _broken(policy, f"heartbeats become {beats!r}, which is not heartbeats of a source")
    if not policy.is_heartbeats_topic(HEARTBEATS):
        raise _broken(policy, "is_heartbeats_topic('heartbeats') is false")


def check_filter(of: type[NameFilter], selected: Collection[str], refused: Collection[str]) -> None:
    """Check a class of filters with the lists ``.*`` and the exclusion of groups of drills.

    Raises:
        ConfigError: it selects a refused name or the group of a drill, or not a selected one.
    """
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
