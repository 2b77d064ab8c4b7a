"""Plan a move: which groups continue where, and what stands in the way. Changes nothing."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from srm.config.model import FlowConfig
from srm.domain.amount import amount
from srm.domain.filters import NameFilter, should_replicate_topic
from srm.domain.group_sync import IDLE
from srm.domain.move.plan import GroupPlan, MovePlan, fingerprint, position_problem
from srm.domain.move.request import MoveRequest
from srm.domain.move.routes import Route, group_subject, topic_subject
from srm.domain.move.warnings import surrounding_warnings
from srm.engine.checkpoints import per_group
from srm.engine.group_listing import WITHOUT_OFFSETS
from srm.engine.move.control import Change
from srm.engine.move.facts import MoveFacts, read_facts
from srm.engine.move.registers import SIDES, Registers
from srm.engine.move.store import MoveContext, MoveStore, ensure_topics
from srm.engine.move.surroundings import surroundings
from srm.engine.move.together import Together, written_together
from srm.engine.ports import TopicDescription
from srm.errors import ConflictError, NotFoundError, UsageError

_REPLACEABLE: Final = frozenset({"planned", "released"})


def plan(
    context: MoveContext,
    request: MoveRequest,
    move_id: str | None = None,
    *,
    dry_run: bool = False,
) -> MovePlan:
    """Plan a move and keep the plan under its id; the first step, safe to repeat.

    Args:
        context: both flows between the clusters of the request.
        request: what to move.
        move_id: id to plan under; with the same id again the plan is made again, unless the move
            has continued since, then the stored plan is returned.
        dry_run: only compute; nothing is written to either cluster.

    Raises:
        UsageError: the request contradicts itself or the flow.
        NotFoundError: a topic or group that was named does not exist.
        ConflictError: the id belongs to a move of something else.
    """
    if request.flow != context.forward.config.flow:
        raise UsageError(
            f"the move goes {request.flow}, the flow given is {context.forward.config.flow}"
        )
    if dry_run:
        return compute_plan(context, request, move_id or new_move_id(context, request))
    ensure_topics(context)
    store = MoveStore(context)
    if move_id is not None:
        known = store.find_plan(move_id)
        if known is not None and known.request != request:
            raise ConflictError(
                f"move {move_id!r} was planned for something else: choose another id, or repeat "
                f"the same request"
            )
        if known is not None and store.progress(move_id).step not in _REPLACEABLE:
            return known
    return _keep(context, compute_plan(context, request, move_id or new_move_id(context, request)))


def _keep(context: MoveContext, fresh: MovePlan) -> MovePlan:
    """Store a plan, unless clients were held by an earlier one while it was computed."""
    with Registers(context) as registers:

        def body() -> MovePlan:
            registers.require(*SIDES)
            known = registers.plan(fresh.move_id)
            if known is not None and registers.progress(fresh.move_id).step not in _REPLACEABLE:
                return known
            for side in SIDES:
                registers.write(side, Change(documents={f"plan:{fresh.move_id}": fresh.value()}))
            return fresh

        return registers.run(f"plan of move {fresh.move_id}", body)


def new_move_id(context: MoveContext, request: MoveRequest) -> str:
    """Make an id that sorts by time and says what the move is."""
    time = datetime.fromtimestamp(context.now_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%S")
    return f"{time}-{request.operation}-{request.source}-{request.target}-{secrets.token_hex(2)}"


@dataclass(frozen=True)
class Findings:
    """What a move starts from: one look at both clusters, and what stands in the way.

    ``notices`` say which groups stay. ``transactions`` are those over several topics.
    """

    facts: MoveFacts
    groups: tuple[GroupPlan, ...]
    blocking: tuple[str, ...]
    notices: tuple[str, ...]
    transactions: Together


def compute_plan(context: MoveContext, request: MoveRequest, move_id: str) -> MovePlan:
    """Read both clusters, also around what moves, and compute the plan.

    Raises:
        UsageError: a topic was named by the name of its copy.
        NotFoundError: a topic or group that was named does not exist.
    """
    found = findings(context, request, move_id)
    facts, groups = found.facts, found.groups
    return MovePlan(
        move_id=move_id,
        created_ms=context.now_ms(),
        request=request,
        topics=facts.topics,
        groups=groups,
        blocking=found.blocking,
        warnings=(
            *found.notices,
            *surrounding_warnings(request, facts.topics, surroundings(context, facts, groups)),
            *_warnings(groups, facts, request),
            *found.transactions.warnings,
        ),
        fingerprint=config_fingerprint(context),
    )


def findings(context: MoveContext, request: MoveRequest, move_id: str) -> Findings:
    """Read both clusters for what moves: all that blocks, and nothing that is only warned of.

    Raises:
        UsageError: a topic was named by the name of its copy.
        NotFoundError: a topic or group that was named does not exist.
    """
    topics = _topics(context, request)
    chosen, notices = _groups(context, request, topics)
    facts = read_facts(context, request, topics, chosen)
    groups = tuple(
        GroupPlan(group, facts.source.group(group).members, facts.positions(group))
        for group in facts.groups
    )
    selected = _originals(facts.source.topics, context.forward.config)
    transactions = written_together(context.source, request, topics, selected)
    blocking = (
        *_topic_problems(context, facts),
        *transactions.blocking,
        *_route_problems(facts, request, move_id),
        *(reason for group in groups for reason in _group_problems(group, facts, request)),
    )
    return Findings(facts, groups, blocking or _empty(groups, topics), notices, transactions)


def config_fingerprint(context: MoveContext) -> str:
    """Identify the settings of both flows."""
    return fingerprint(context.forward.config, context.reverse.config)


def _topics(context: MoveContext, request: MoveRequest) -> tuple[str, ...]:
    policy, flow = context.forward.config.policy, context.forward.config.flow
    on_source, on_target = context.source.topics(), context.target.topics()
    if not request.topics:
        selected = _originals(on_source, context.forward.config)
        return tuple(sorted(selected | _originals(on_target, context.reverse.config)))
    for topic in request.topics:
        if policy.topic_source(topic) in {flow.source, flow.target}:
            raise UsageError(
                f"topic {topic!r} is a copy: name the original, {policy.upstream_topic(topic)!r}, "
                f"its copies move with it"
            )
        if topic not in on_source and topic not in on_target:
            raise NotFoundError(
                f"topic {topic!r} exists neither on {flow.source} nor on {flow.target}"
            )
    return tuple(sorted(request.topics))


def _originals(topics: Mapping[str, TopicDescription], config: FlowConfig) -> set[str]:
    selection = NameFilter(config.topics, config.topics_exclude)
    aliases = {config.flow.source, config.flow.target}
    return {
        topic
        for topic in topics
        if should_replicate_topic(topic, config, selection)
        and config.policy.topic_source(topic) not in aliases
        and not config.policy.is_heartbeats_topic(topic)
    }


def _groups(
    context: MoveContext, request: MoveRequest, topics: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Choose the groups; return them, and what is to be said of those that stay."""
    source = context.source
    if request.groups:
        described = source.groups(request.groups)
        for group in request.groups:
            if described[group].state == "dead" and not source.committed(group):
                raise NotFoundError(
                    f"consumer group {group!r} does not exist on {request.source}: "
                    f"name a group that has offsets there"
                )
            if described[group].kind in WITHOUT_OFFSETS:
                raise UsageError(
                    f"group {group!r} on {request.source} cannot be moved "
                    f"({described[group].kind}): name groups that commit offsets"
                )
        return tuple(sorted(request.groups)), ()
    policy, config = context.forward.config.policy, context.forward.config
    ours = set(topics) | {policy.format_remote_topic(request.target, topic) for topic in topics}
    selection = NameFilter(config.groups, config.groups_exclude)
    listed = {name: group for name, group in source.groups().items() if selection.matches(name)}
    committed, errors = per_group(
        [name for name, group in listed.items() if group.kind not in WITHOUT_OFFSETS],
        source.committed,
    )
    share = [
        f"share group {name} is not moved, it has no committed offsets (KIP-932): start it on "
        f"{request.target} by hand"
        for name, group in listed.items()
        if group.kind == "share"
    ]
    unread = [f"group {name} is not moved: {why}" for name, why in errors.items()]
    found = (name for name, offsets in committed.items() if {tp.topic for tp in offsets} & ours)
    return tuple(sorted(found)), tuple(sorted((*share, *unread)))


def _topic_problems(context: MoveContext, facts: MoveFacts) -> Iterator[str]:
    config = context.forward.config
    selection = NameFilter(config.topics, config.topics_exclude)
    for topic in facts.topics:
        if topic not in facts.source.topics:
            continue
        remote = config.policy.format_remote_topic(config.flow.source, topic)
        if not should_replicate_topic(topic, config, selection):
            yield (
                f"topic {topic} is not replicated by {config.flow}: add it with 'srm-control "
                f"topics --source {config.flow.source} --target {config.flow.target} --add {topic}'"
            )
        elif remote not in facts.target.topics:
            yield f"topic {remote} does not exist on {config.flow.target}: is the replicator on?"


def _route_problems(facts: MoveFacts, request: MoveRequest, move_id: str) -> Iterator[str]:
    merged = facts.routing.merged
    subjects = [topic_subject(topic) for topic in facts.topics]
    subjects += [group_subject(group) for group in facts.groups]
    for subject in subjects:
        reason = route_problem(subject, merged.get(subject), request, move_id)
        if reason is not None:
            yield reason


def route_problem(
    subject: str, route: Route | None, request: MoveRequest, move_id: str
) -> str | None:
    """Say why the route of a subject keeps a move from holding it, None where nothing does."""
    if route is None:
        return None
    if route.state == "hold" and route.move_id != move_id:
        return f"{subject} is held by move {route.move_id}: finish or release that one first"
    if route.cluster != request.source:
        return f"{subject} is routed to {route.cluster}, so it cannot leave {request.source}"
    return None


def _group_problems(group: GroupPlan, facts: MoveFacts, request: MoveRequest) -> Iterator[str]:
    found = facts.group(group.group)
    if found.target_state not in IDLE:
        who = ", ".join(found.target_members) or found.target_reason or found.target_state
        yield f"group {group.group} is active on {request.target} ({who}): stop it there"
    if found.source_state == "unknown":
        why = found.source_reason or "its state is not known"
        yield f"group {group.group} on {request.source} may have members: {why}"
    if found.unreadable:
        yield f"offsets of group {group.group} cannot be read: {found.unreadable}"
    stray = facts.stray_topics(group.group)
    if stray and not request.accept_stray_offsets:
        yield (
            f"group {group.group} also has offsets on {', '.join(stray)}, which do not move: add "
            f"them to the topics, delete these offsets, or move without them: "
            f"--accept-stray-offsets (in the form: accept_stray_offsets)"
        )
    for position in group.positions:
        problem = position_problem(group.group, position, request)
        if problem is not None:
            yield problem


def _empty(groups: tuple[GroupPlan, ...], topics: tuple[str, ...]) -> tuple[str, ...]:
    if not topics:
        return ("the flow replicates no topic: add one with 'srm-control topics --add'",)
    if not groups:
        return (f"no group has offsets on {', '.join(topics)}: name the groups to move",)
    return ()


def _warnings(
    groups: tuple[GroupPlan, ...], facts: MoveFacts, request: MoveRequest
) -> Iterator[str]:
    behind: dict[str, int] = {}
    for partition in facts.replication():
        behind[partition.topic] = behind.get(partition.topic, 0) + partition.remaining
        if partition.held_back:
            leave = f"{request.target} will lack {amount(partition.held_back, 'record')}"
            wait = "the move will wait until it has ended"
            yield (
                f"{partition.name} has an open transaction from offset {partition.stable_end} on: "
                f"{leave if request.accept_open_transactions else wait}"
            )
    for topic, remaining in sorted(behind.items()):
        if remaining:
            yield (
                f"replication of {topic} is {amount(remaining, 'record')} behind: "
                "the move will wait for it"
            )
    for group in groups:
        yield from _group_warnings(group, request)


def _group_warnings(group: GroupPlan, request: MoveRequest) -> Iterator[str]:
    for position in group.positions:
        if position.skipped and request.accept_skips:
            yield (
                f"group {group.group} will skip {amount(position.skipped, 'record')} of "
                f"{position.name}: {position.reason}"
            )
        if position.state == "conflict" and request.overwrite:
            yield (
                f"group {group.group} will read {amount(position.re_read, 'record')} of "
                f"{position.target} again"
            )
    if undecided := [position.name for position in group.positions if position.left_to_reset]:
        yield (
            f"group {group.group} has committed nothing for {', '.join(undecided)}: where it "
            f"starts on {request.target} is left to auto.offset.reset of its clients"
        )
