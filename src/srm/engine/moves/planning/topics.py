"""Topics and groups of a move: originals, never their copies."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from srm.config.model import FlowConfig
from srm.domain.moves.records.request import MoveRequest
from srm.domain.moves.routing.routes import group_subject
from srm.domain.names.filters import group_filter, should_replicate_topic
from srm.domain.names.policy import DefaultReplicationPolicy
from srm.domain.names.topics import Flow
from srm.engine.groups.checkpoints import per_group
from srm.engine.groups.group_listing import WITHOUT_OFFSETS, groups_with_offsets
from srm.engine.moves.control.move_records import MoveContext
from srm.engine.moves.control.routes import RoutingTables
from srm.engine.moves.planning.last_places import LastPlaces
from srm.engine.ports import FlowContext
from srm.errors import NotFoundError, UsageError


@dataclass(frozen=True, slots=True)
class MoveScope:
    """The topics and groups that move; ``notices`` name the groups that stay, with the reason."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    notices: tuple[str, ...] = ()


def originals(topics: Collection[str], config: FlowConfig) -> set[str]:
    """Return the topics of a flow's source that it copies and that are not copies themselves."""
    selection = config.topic_filter
    aliases = {config.flow.source, config.flow.target}
    return {
        topic
        for topic in topics
        if should_replicate_topic(topic, config, selection)
        and config.policy.topic_source(topic) not in aliases
        and not config.policy.is_heartbeats_topic(topic)
    }


def movable(context: FlowContext) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the original topics and the groups that a move along a flow may name, in order.

    Groups of both sides count: their current side depends on earlier moves.
    """
    config = context.config
    wanted = group_filter(config.groups, config.groups_exclude)
    groups = {*groups_with_offsets(context.source), *groups_with_offsets(context.target)}
    return (
        tuple(sorted(originals(context.source.topics(), config))),
        tuple(sorted(filter(wanted.matches, groups))),
    )


def require_original(topic: str, policy: DefaultReplicationPolicy, flow: Flow) -> None:
    """Refuse the name of a copy."""
    if policy.topic_source(topic) in {flow.source, flow.target}:
        raise UsageError(
            f"topic {topic!r} is a copy: name the original, {policy.upstream_topic(topic)!r}; "
            f"its copies move with it"
        )


def topics_to_move(
    context: MoveContext, request: MoveRequest, on_target: Collection[str]
) -> tuple[str, ...]:
    """Return the topics that a request names, or all that either flow copies.

    If the source is lost, these are the topics with a copy on the target.

    Raises:
        UsageError: a topic was named by the name of its copy.
        NotFoundError: a named topic does not exist.
    """
    forward, reverse = context.forward.config, context.reverse.config
    policy, flow = forward.policy, forward.flow
    if request.is_unplanned:
        copied = {
            original
            for topic in on_target
            if policy.topic_source(topic) == flow.source and not policy.is_internal_topic(topic)
            if (original := policy.upstream_topic(topic)) and not policy.is_heartbeats_topic(topic)
        }
        there = {*copied, *on_target}
        missing = f"is not on {flow.target}, nor is its copy"
    else:
        on_source = context.source.topics()
        copied = originals(on_source, forward)
        there = {*on_source, *on_target}
        missing = f"exists neither on {flow.source} nor on {flow.target}"
    if not request.topics:
        return tuple(sorted(copied | originals(on_target, reverse)))
    for topic in request.topics:
        require_original(topic, policy, flow)
        if topic not in there:
            raise NotFoundError(f"topic {topic!r} {missing}")
    return tuple(sorted(request.topics))


def groups_on_source(
    context: MoveContext, request: MoveRequest, topics: tuple[str, ...]
) -> MoveScope:
    """Return the groups that a request names, or all with offsets on the moving topics.

    A group with members but no commits moves if its clients follow routes. A move of everything
    also includes groups without offsets that a route sends to the source.

    Raises:
        UsageError: a named group commits no offsets.
        NotFoundError: a named group does not exist.
    """
    source = context.source
    if request.groups:
        described = source.groups(request.groups)
        for group in request.groups:
            if described[group].state == "dead" and not source.committed_offsets(group):
                raise NotFoundError(
                    f"consumer group {group!r} does not exist on {request.source}: "
                    f"name a group that has offsets there"
                )
            if described[group].kind in WITHOUT_OFFSETS:
                raise UsageError(
                    f"group {group!r} on {request.source} cannot be moved "
                    f"({described[group].kind}): name groups that commit offsets"
                )
        return MoveScope(topics, tuple(sorted(request.groups)))
    policy, config = context.forward.config.policy, context.forward.config
    ours = set(topics) | {policy.format_remote_topic(request.target, topic) for topic in topics}
    selection = group_filter(config.groups, config.groups_exclude)
    listed = {name: group for name, group in source.groups().items() if selection.matches(name)}
    committed, errors = per_group(
        source.commits_of([n for n, group in listed.items() if group.kind not in WITHOUT_OFFSETS])
    )
    share = [
        f"share group {name} is not moved, it has no committed offsets (KIP-932): start it on "
        f"{request.target} manually"
        for name, group in listed.items()
        if group.kind == "share"
    ]
    unread = [f"group {name} is not moved: {why.text}" for name, why in errors.items()]
    found = {name for name, offsets in committed.items() if {tp.topic for tp in offsets} & ours}
    fresh = {name for name, offsets in committed.items() if not offsets and listed[name].members}
    routing = RoutingTables.read(context) if fresh or not request.topics else None
    known, following, routed = set[str](), set[str](), set[str]()
    if routing is not None:
        known, following = _followers(routing, ours)
        with_offsets = {name for name, offsets in committed.items() if offsets}
        unmovable = {n for n, group in listed.items() if group.kind in WITHOUT_OFFSETS}
        routed = set(filter(selection.matches, _routed_to_source(request, routing)))
        routed -= with_offsets | unmovable | errors.keys()
    silent = [
        f"group {name} has members and has committed nothing, so its topics are unknown. It is "
        f"not moved; name it with --group to move it"
        for name in fresh - known - routed
    ]
    groups = tuple(sorted(found | fresh & following | routed))
    return MoveScope(topics, groups, tuple(sorted((*share, *unread, *silent))))


def _followers(routing: RoutingTables, ours: Collection[str]) -> tuple[set[str], set[str]]:
    """Return the groups with a client that follows routes, and those that may read some topics.

    A program that only restarts at another address does not report its topics, so any count.
    """
    prefix, known, reading = group_subject(""), set[str](), set[str]()
    for ack in routing.acks:
        if ack.subject.startswith(prefix):
            group = ack.subject.removeprefix(prefix)
            known.add(group)
            topics = {place.rpartition("-")[0] for place in ack.positions}
            if not topics or topics & {*ours}:
                reading.add(group)
    return known, reading


def _routed_to_source(request: MoveRequest, routing: RoutingTables) -> set[str]:
    """Return the groups that an earlier move sent to the source, none for a move of some topics.

    If they have not committed since, their topics are unknown.
    """
    prefix = group_subject("")
    return {
        subject.removeprefix(prefix)
        for subject, route in routing.merge.items()
        if not request.topics and subject.startswith(prefix) and route.cluster == request.source
    }


def groups_after_loss(
    context: MoveContext,
    request: MoveRequest,
    topics: tuple[str, ...],
    known: LastPlaces,
    routing: RoutingTables,
) -> MoveScope:
    """Return the groups that a request names, or all with a last known position or a follower.

    A move of everything also includes those that a route sends to the source: it may have been lost
    before any of their positions reached the target.
    """
    if request.groups:
        return MoveScope(topics, tuple(sorted(request.groups)))
    config, prefix = context.forward.config, group_subject("")
    selection = group_filter(config.groups, config.groups_exclude)
    subjects = (ack.subject for ack in routing.acks if ack.subject.startswith(prefix))
    found = {*known.places, *(subject.removeprefix(prefix) for subject in subjects)}
    found |= _routed_to_source(request, routing)
    return MoveScope(topics, tuple(sorted(filter(selection.matches, found))))
