"""Which topics a move is about: originals, never their copies."""

from __future__ import annotations

from collections.abc import Collection

from srm.config.model import FlowConfig
from srm.domain.filters import NameFilter, group_filter, should_replicate_topic
from srm.domain.policy import DefaultReplicationPolicy
from srm.domain.topics import Flow
from srm.engine.group_listing import groups_with_offsets
from srm.engine.ports import FlowContext
from srm.errors import UsageError


def originals(topics: Collection[str], config: FlowConfig) -> set[str]:
    """Return the topics of a flow's source that it copies, without those that are copies."""
    selection = NameFilter(config.topics, config.topics_exclude)
    aliases = {config.flow.source, config.flow.target}
    return {
        topic
        for topic in topics
        if should_replicate_topic(topic, config, selection)
        and config.policy.topic_source(topic) not in aliases
        and not config.policy.is_heartbeats_topic(topic)
    }


def movable(context: FlowContext) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what moves along a flow may be asked for: original topics, and groups, in order.

    Groups are those of either side: where they are depends on the moves before.

    Raises:
        SrmError: a cluster does not answer.
    """
    config = context.config
    wanted = group_filter(config.groups, config.groups_exclude)
    groups = {*groups_with_offsets(context.source), *groups_with_offsets(context.target)}
    return (
        tuple(sorted(originals(context.source.topics(), config))),
        tuple(sorted(filter(wanted.matches, groups))),
    )


def require_original(topic: str, policy: DefaultReplicationPolicy, flow: Flow) -> None:
    """Refuse the name of a copy.

    Raises:
        UsageError: it is one.
    """
    if policy.topic_source(topic) in {flow.source, flow.target}:
        raise UsageError(
            f"topic {topic!r} is a copy: name the original, {policy.upstream_topic(topic)!r}, "
            f"its copies move with it"
        )
