"""Look around a move that is planned: what it warns of besides the groups that move."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from srm.domain.filters import NameFilter, should_replicate_topic
from srm.domain.move.plan import GroupPlan
from srm.domain.move.presence import Presence, Writers, strangers, unknown_writers
from srm.domain.move.warnings import Surroundings
from srm.engine.checkpoints import per_group
from srm.engine.group_listing import WITHOUT_OFFSETS
from srm.engine.move.facts import MoveFacts
from srm.engine.move.store import MoveContext

_FOR_EVER = "-1"
_MOST_GROUPS = 2_000
"""Groups whose offsets are read to find those that stay: one request each."""


def surroundings(
    context: MoveContext, facts: MoveFacts, groups: Collection[GroupPlan]
) -> Surroundings:
    """Read what a plan warns of."""
    now_ms = context.now_ms()
    presence = Presence.of(facts.routing.announced, now_ms)
    members = {group.group: strangers(group.group, group.members, presence) for group in groups}
    recent_ms = round(facts.request.slow_writer_seconds * 1000)
    at_plan = {writer.name: writer.last_sequence for writer in facts.writers}
    writers = Writers(facts.writers, at_plan, now_ms, recent_ms)
    plain = {topic: unknown_writers(topic, writers, presence) for topic in facts.topics}
    return Surroundings(
        opposite_enabled=context.reverse.config.enabled,
        opposite_topics=_topics_copied_back(context, facts.topics),
        report_age_ms=facts.report_age_ms(now_ms),
        staying=_staying(context, facts),
        strays={g.group: stray for g in groups if (stray := facts.stray_topics(g.group))},
        retention_ms=_retention(context, facts.topics),
        skew_ms=_skew(facts),
        plain_members={group: found for group, found in members.items() if found},
        plain_writers={topic: count for topic, count in plain.items() if count},
    )


def _topics_copied_back(context: MoveContext, topics: Collection[str]) -> frozenset[str]:
    config = context.reverse.config
    selection = NameFilter(config.topics, config.topics_exclude)
    return frozenset(t for t in topics if should_replicate_topic(t, config, selection))


def _staying(context: MoveContext, facts: MoveFacts) -> dict[str, tuple[str, ...]]:
    """Groups that do not move although they read what moves."""
    ours = {pair.topic for pair in facts.pairs}
    listed = context.source.groups().values()
    others = [
        g.name for g in listed if g.kind not in WITHOUT_OFFSETS and g.name not in facts.groups
    ]
    committed, _ = per_group(others[:_MOST_GROUPS], context.source.committed)
    read = {name: {tp.topic for tp in offsets} & ours for name, offsets in committed.items()}
    return {name: tuple(sorted(topics)) for name, topics in read.items() if topics}


def _retention(
    context: MoveContext, topics: Collection[str]
) -> dict[str, tuple[int | None, int | None]]:
    """Retention times that both sides have set themselves; a broker's default is not asked for."""
    policy, flow = context.forward.config.policy, context.forward.config.flow
    remotes = {topic: policy.format_remote_topic(flow.source, topic) for topic in topics}
    on_source = context.source.topic_configs(list(remotes))
    on_target = context.target.topic_configs(list(remotes.values()))
    return {
        topic: (_milliseconds(source), _milliseconds(target))
        for topic, remote in remotes.items()
        if (source := _set(on_source, topic)) and (target := _set(on_target, remote))
    }


def _set(configs: Mapping[str, Mapping[str, str]], topic: str) -> str | None:
    return configs.get(topic, {}).get("retention.ms")


def _milliseconds(value: str) -> int | None:
    return None if value == _FOR_EVER else int(value)


def _skew(facts: MoveFacts) -> dict[str, int]:
    """How far clients' and brokers' clocks are apart, by what clients announced.

    An announcement is stamped when it arrives, some time after it was written: after seconds where
    the client had to connect first, or a broker was away. That only ever makes the difference
    larger, so the least one of a host is the nearest.
    """
    skews: dict[str, int] = {}
    for one in facts.routing.announced:
        where = f"{one.ack.cluster}, seen from {one.ack.host or one.ack.client}"
        skew = one.stamped_ms - one.ack.written_ms
        skews[where] = min(skew, skews.get(where, skew))
    return skews
