"""Plan a move: which groups continue where, and what stands in the way. Changes nothing."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from srm.domain.filters import group_filter
from srm.domain.move.plan import GroupPlan, MovePlan
from srm.domain.move.request import MoveRequest
from srm.domain.move.warnings import surrounding_warnings
from srm.domain.reason import Reason
from srm.engine.checkpoints import per_group
from srm.engine.copiers import down_reasons, driver_status, slot_statuses
from srm.engine.drill.leftovers import try_to_remove_leftovers
from srm.engine.group_listing import WITHOUT_OFFSETS
from srm.engine.move.control import Change
from srm.engine.move.facts import MoveFacts
from srm.engine.move.fence import fence_problems
from srm.engine.move.problems import (
    group_problems,
    halted_problems,
    nothing_to_move,
    plan_warnings,
    redirect_problems,
    route_problems,
    topic_problems,
    unsettled_problems,
)
from srm.engine.move.proof import Verdicts, proof_problems, prove_groups
from srm.engine.move.reading import read_facts
from srm.engine.move.redirect import fence_of, redirectors_of
from srm.engine.move.registers import Registers, sides_of
from srm.engine.move.routes import require_in_force
from srm.engine.move.store import MoveContext, MoveStore, config_fingerprint, ensure_topics
from srm.engine.move.surroundings import surroundings
from srm.engine.move.together import Together, written_together
from srm.engine.move.topics import originals, require_original
from srm.engine.move.unplanned import compute_unplanned
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
        ConflictError: the id belongs to a move of something else, or to one that has ended and
            that a later one has superseded.
    """
    if request.flow != context.forward.config.flow:
        raise UsageError(
            f"the move goes {request.flow}, the flow given is {context.forward.config.flow}"
        )
    compute = compute_unplanned if request.unplanned else compute_plan
    if dry_run:
        return compute(context, request, move_id or new_move_id(context, request))
    ensure_topics(context, unplanned=request.unplanned)
    try_to_remove_leftovers(context.target, context.now_ms())
    store = MoveStore(context)
    if move_id is not None:
        known = store.find_plan(move_id)
        if known is not None and known.request != request:
            raise ConflictError(
                f"move {move_id!r} was planned for something else: choose another id, or repeat "
                f"the same request"
            )
        if known is not None and (at := store.progress(move_id)).step not in _REPLACEABLE:
            require_in_force(context, known, at)
            return known
    return _keep(context, compute(context, request, move_id or new_move_id(context, request)))


def _keep(context: MoveContext, fresh: MovePlan) -> MovePlan:
    """Store a plan, unless clients were held by an earlier one while it was computed."""
    with Registers(context) as registers:

        def body() -> MovePlan:
            registers.require(*sides_of(fresh.request))
            known = registers.plan(fresh.move_id)
            if known is not None and registers.progress(fresh.move_id).step not in _REPLACEABLE:
                return known
            for side in sides_of(fresh.request):
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

    ``halted`` is what a move would wait for in vain, ``is_copied`` whether anybody copies.
    ``notices`` say which groups stay. ``transactions`` are those over several topics, ``verdicts``
    what the records say of each translation.
    """

    facts: MoveFacts
    groups: tuple[GroupPlan, ...]
    problems: tuple[Reason, ...]
    halted: tuple[Reason, ...]
    is_copied: bool
    notices: tuple[str, ...]
    transactions: Together
    verdicts: Verdicts

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """All that keeps a move from starting."""
        return (*self.problems, *self.halted)

    @property
    def blocking(self) -> tuple[str, ...]:
        """All that keeps a move from starting, in words."""
        return tuple(reason.text for reason in self.reasons)


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
            *plan_warnings(groups, facts, request, is_copied=found.is_copied),
            *found.transactions.warnings,
        ),
        fingerprint=config_fingerprint(context),
        redirect=redirectors_of(context, request),
        fence=fence_of(context, request),
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
    selected = originals(facts.source.topics, context.forward.config)
    transactions = written_together(context.source, request, topics, selected)
    verdicts = prove_groups(context, request, facts)
    down = _down(context, facts)
    problems = (
        *redirect_problems(context.forward, redirectors_of(context, request)),
        *map(Reason, fence_problems(context.source, fence_of(context, request))),
        *unsettled_problems(context.forward),
        *map(Reason, topic_problems(context.forward.config, facts)),
        *map(Reason, transactions.blocking),
        *map(Reason, route_problems(facts, request, move_id)),
        *(reason for group in groups for reason in group_problems(group, facts, request)),
        *proof_problems(verdicts),
    )
    return Findings(
        facts,
        groups,
        problems or tuple(map(Reason, nothing_to_move(groups, topics))),
        tuple(halted_problems(facts, down)),
        down is None,
        notices,
        transactions,
        verdicts,
    )


def _down(context: MoveContext, facts: MoveFacts) -> Reason | None:
    """Say why nobody copies the flow of the move, None where somebody does."""
    driver, _ = driver_status(context.forward, context.now_ms())
    slots = slot_statuses(facts.maps.reports, facts.maps_ms)
    return next(down_reasons(context.forward.config.flow, driver, slots), None)


def _topics(context: MoveContext, request: MoveRequest) -> tuple[str, ...]:
    policy, flow = context.forward.config.policy, context.forward.config.flow
    on_source, on_target = context.source.topics(), context.target.topics()
    if not request.topics:
        selected = originals(on_source, context.forward.config)
        return tuple(sorted(selected | originals(on_target, context.reverse.config)))
    for topic in request.topics:
        require_original(topic, policy, flow)
        if topic not in on_source and topic not in on_target:
            raise NotFoundError(
                f"topic {topic!r} exists neither on {flow.source} nor on {flow.target}"
            )
    return tuple(sorted(request.topics))


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
    selection = group_filter(config.groups, config.groups_exclude)
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
    unread = [f"group {name} is not moved: {why.text}" for name, why in errors.items()]
    found = (name for name, offsets in committed.items() if {tp.topic for tp in offsets} & ours)
    return tuple(sorted(found)), tuple(sorted((*share, *unread)))
