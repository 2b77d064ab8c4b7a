"""Read the surroundings of a move that is planned."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from srm.domain.moves.gate.presence import Presence, Writers, strangers, unknown_writers
from srm.domain.moves.gate.warnings import Surroundings
from srm.domain.moves.records.plan import GroupPlan
from srm.domain.names.filters import SHADOW_PREFIX, NameFilter, should_replicate_topic
from srm.engine.groups.checkpoints import per_group
from srm.engine.groups.group_listing import WITHOUT_OFFSETS
from srm.engine.moves.control.move_records import MoveContext
from srm.engine.moves.planning.facts import MoveFacts
from srm.engine.moves.planning.reading import partitions, read_writers

_FOR_EVER = "-1"
_MOST_GROUPS = 2_000
"""Groups whose offsets are read to find those that stay."""


def surroundings(context: MoveContext, facts: MoveFacts) -> Surroundings:
    """Read what a plan warns of; of a lost source only what the target and the file say."""
    copied = _partitions_of_originals(facts)
    there = Surroundings(
        opposite_enabled=context.reverse.config.enabled,
        opposite_topics=topics_copied_back(context, facts.topics),
        absent={name: n for name, n in copied.items() if name not in facts.target.topics},
        alone=_alone(facts),
    )
    return there if facts.is_away else _around_source(context, facts, there)


def _around_source(context: MoveContext, facts: MoveFacts, there: Surroundings) -> Surroundings:
    groups = facts.plans
    now_ms = context.now_ms()
    presence = Presence.of(facts.routing.stamped_acks, now_ms)
    members = {group.group: strangers(group.group, group.members, presence) for group in groups}
    recent_ms = round(facts.request.slow_writer_seconds * 1000)
    at_plan = {writer.name: writer.last_sequence for writer in facts.writers}
    writers = Writers(facts.writers, at_plan, now_ms, recent_ms)
    plain = {topic: unknown_writers(topic, writers, presence) for topic in facts.topics}
    return replace(
        there,
        # Where nothing is to be copied the reports were not read.
        report_age_ms=facts.report_age_ms if facts.replication() else 0,
        staying=_staying(context, facts),
        strays={g.group: stray for g in groups if (stray := facts.stray_topics(g.group))},
        retention_ms=_retention(context, facts.topics),
        skew_ms=_skew(facts),
        plain_members={group: found for group, found in members.items() if found},
        plain_writers={topic: count for topic, count in plain.items() if count},
        shared_ids=_shared_ids(context, facts, [topic for topic, count in plain.items() if count]),
        state={group.group: found for group in groups if (found := _changelogs(facts, group))},
    )


def _alone(facts: MoveFacts) -> tuple[str, ...]:
    """Clusters that replicate topics, and keep one replica of their transactions."""
    sides = (facts.target,) if facts.is_away else (facts.source, facts.target)
    return tuple(
        side.alias
        for side in sides
        if (log := side.topics.get("__transaction_state")) is not None
        and log.replicas == 1 < max(topic.replicas for topic in side.topics.values())
    )


def _partitions_of_originals(facts: MoveFacts) -> dict[str, int]:
    """Count the partitions of the originals on the source; of a lost one, those of the copies."""
    topics = facts.target.topics if facts.is_away else facts.source.topics
    forward = [pair for pair in facts.pairs if pair.direction == "forward"]
    names = {pair.original: pair.target_topic if facts.is_away else pair.topic for pair in forward}
    return {name: topics[at].partitions for name, at in names.items() if at in topics}


def _shared_ids(
    context: MoveContext, facts: MoveFacts, topics: Collection[str]
) -> dict[str, tuple[int, ...]]:
    """Producer ids that both clusters have given away, by the partition that both write to.

    Each cluster counts its ids for itself. Epoch and sequence may differ too; that is luck.
    """
    there: dict[str, set[int]] = {}
    for one in read_writers(context.target, partitions(facts.target.topics, topics)):
        there.setdefault(str(one.partition), set()).add(one.producer_id)
    here: dict[str, set[int]] = {}
    for one in facts.writers:
        if one.partition.topic in topics:
            here.setdefault(str(one.partition), set()).add(one.producer_id)
    return {
        partition: tuple(sorted(shared))
        for partition, ids in here.items()
        if (shared := ids & there.get(partition, set()))
    }


def _changelogs(facts: MoveFacts, group: GroupPlan) -> tuple[str, ...]:
    """Topics in which a Kafka Streams application keeps its state: named after its group."""
    start = f"{group.group}-"
    return tuple(
        sorted(
            topic
            for topic in facts.source.topics
            if topic.startswith(start) and topic.endswith("-changelog")
        )
    )


def topics_copied_back(context: MoveContext, topics: Collection[str]) -> frozenset[str]:
    """Return those of a move's topics that the opposite flow copies."""
    config = context.reverse.config
    selection = NameFilter(config.topics, config.topics_exclude)
    return frozenset(t for t in topics if should_replicate_topic(t, config, selection))


def _staying(context: MoveContext, facts: MoveFacts) -> dict[str, tuple[str, ...]]:
    """Groups that do not move although they read what moves."""
    ours = {pair.topic for pair in facts.pairs}
    listed = context.source.groups().values()
    others = [
        g.name
        for g in listed
        if g.kind not in WITHOUT_OFFSETS
        and g.name not in facts.groups
        and not g.name.startswith(SHADOW_PREFIX)
    ]
    committed, _ = per_group(context.source.commits_of(others[:_MOST_GROUPS]))
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
    for one in facts.routing.stamped_acks:
        where = f"{one.ack.cluster}, seen from {one.ack.host or one.ack.client}"
        skew = one.stamped_ms - one.ack.written_ms
        skews[where] = min(skew, skews.get(where, skew))
    return skews
