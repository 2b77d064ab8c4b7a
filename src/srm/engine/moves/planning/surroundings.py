"""Reading of the surroundings of a planned move, for its warnings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from srm.domain.moves.gate.presence import Presence, Writers, strangers, unknown_writers
from srm.domain.moves.gate.warnings import Surroundings
from srm.domain.moves.records.plan import GroupPlan
from srm.domain.names.filters import SHADOW_PREFIX
from srm.engine.flows.source_look import partitions_of
from srm.engine.groups.checkpoints import per_group
from srm.engine.groups.group_listing import WITHOUT_OFFSETS
from srm.engine.moves.control.move_records import MoveContext
from srm.engine.moves.planning.facts import MoveFacts
from srm.engine.moves.planning.reading import read_writers

_FOR_EVER = "-1"
_MOST_GROUPS = 2_000
"""Maximum number of groups whose offsets are read to find those that stay."""


def surroundings(context: MoveContext, facts: MoveFacts) -> Surroundings:
    """Read the facts that a plan warns about; for a lost source only target and configuration."""
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
        staying=_staying(context, facts),
        retention_ms=_retention(context, facts.topics),
        skew_ms=_skew(facts),
        plain_members={group: found for group, found in members.items() if found},
        plain_writers={topic: count for topic, count in plain.items() if count},
        shared_ids=_shared_ids(context, facts, [topic for topic, count in plain.items() if count]),
        state={group.group: found for group in groups if (found := _changelogs(facts, group))},
    )


def _alone(facts: MoveFacts) -> tuple[str, ...]:
    """Return the clusters that replicate topics, but have one replica of their transaction log."""
    sides = (facts.target,) if facts.is_away else (facts.source, facts.target)
    return tuple(
        side.alias
        for side in sides
        if (log := side.topics.get("__transaction_state")) is not None
        and log.replicas == 1 < max(topic.replicas for topic in side.topics.values())
    )


def _partitions_of_originals(facts: MoveFacts) -> dict[str, int]:
    topics = facts.target.topics if facts.is_away else facts.source.topics
    forward = [pair for pair in facts.pairs if pair.direction == "forward"]
    names = {pair.original: pair.target_topic if facts.is_away else pair.topic for pair in forward}
    return {name: topics[at].partitions for name, at in names.items() if at in topics}


def _shared_ids(
    context: MoveContext, facts: MoveFacts, topics: Collection[str]
) -> dict[str, tuple[int, ...]]:
    """Return producer ids that both clusters have assigned to writers of one partition."""
    there: dict[str, set[int]] = {}
    for one in read_writers(context.target, partitions_of(facts.target.topics, topics)):
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
    """Return the changelog topics of a Kafka Streams application, named after its group."""
    start = f"{group.group}-"
    return tuple(
        sorted(
            topic
            for topic in facts.source.topics
            if topic.startswith(start) and topic.endswith("-changelog")
        )
    )


def topics_copied_back(context: MoveContext, topics: Collection[str]) -> frozenset[str]:
    """Return the topics of a move that the reverse flow copies."""
    return frozenset(context.reverse.config.names.select(topics))


def _staying(context: MoveContext, facts: MoveFacts) -> dict[str, tuple[str, ...]]:
    """Return the groups that read moving topics but do not move, with these topics."""
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
    """Return retention.ms of topics that set it on both sides; broker defaults are not queried."""
    names = context.forward.config.names
    remotes = {topic: names.remote(topic) for topic in topics}
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
    """Return the clock skew between clients and brokers, by the stamps of acknowledgements.

    A delay on the way only increases it, so the smallest one of a host is the best estimate.
    """
    skews: dict[str, int] = {}
    for one in facts.routing.stamped_acks:
        where = f"{one.ack.cluster}, seen from {one.ack.host or one.ack.client}"
        skew = one.stamped_ms - one.ack.written_ms
        skews[where] = min(skew, skews.get(where, skew))
    return skews
