"""Move clients away from a cluster that is given up: from what the target knows alone.

The same steps, records and routes as a planned move, with these differences. The source is never
asked, and nobody is waited for. The flow from it is paused before anything else, and its copies are
sealed, so that a source that comes back copies nothing unasked and what is lost is final. Groups
continue at their last checkpoint. The attempt is above all that the source may have seen
(:data:`~srm.domain.move.routes.ERA`): its old routes and holds lose when it returns.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from srm.domain import internal_topics
from srm.domain.amount import amount, few, some
from srm.domain.group_sync import IDLE, SyncDecision
from srm.domain.move.gate import GroupSync, SyncStatus
from srm.domain.move.plan import GroupPlan, MovePlan, position_problem
from srm.domain.move.progress import HELD, MoveProgress
from srm.domain.move.request import MoveRequest
from srm.domain.move.routes import CLOCK_KEY, group_subject, topic_subject
from srm.domain.move.warnings import Surroundings, surrounding_warnings
from srm.domain.pause import Pause
from srm.engine.move.applying import apply_positions
from srm.engine.move.problems import redirect_problems, route_problem
from srm.engine.move.redirect import fence_of, redirectors_of
from srm.engine.move.salvage import Salvage, read_salvage
from srm.engine.move.store import MoveContext, config_fingerprint
from srm.engine.move.surroundings import absent_topics, topics_copied_back
from srm.engine.operator import operator
from srm.engine.ports import FlowSwitch
from srm.engine.supervision import standing_pause
from srm.errors import ConflictError, UsageError

log = logging.getLogger(__name__)


def compute_unplanned(context: MoveContext, request: MoveRequest, move_id: str) -> MovePlan:
    """Read the target and compute the plan, with the forecast of what it costs.

    Raises:
        NotFoundError: a topic that was named is copied neither way.
        SrmError: the target does not answer.
    """
    whole = read_salvage(context, request)
    there = _there(whole, move_id)
    found = _without(whole, there)
    now_ms = context.now_ms()
    groups = found.plans
    named = (*map(topic_subject, request.topics), *map(group_subject, request.groups))
    staying = tuple(there[subject] for subject in named if subject in there)
    in_vain = _is_in_vain(request, found.topics, found.groups)
    return MovePlan(
        move_id=move_id,
        created_ms=now_ms,
        request=request,
        topics=found.topics,
        groups=groups,
        blocking=staying if in_vain else tuple(_blocking(found, groups)),
        warnings=(
            *(() if in_vain else staying),
            *_warnings(context, found, groups, move_id),
        ),
        fingerprint=config_fingerprint(context),
        forecast=found.forecast(now_ms),
        redirect=redirectors_of(context, request),
        fence=fence_of(context, request),
    )


def give_up(context: MoveContext, plan: MovePlan) -> MoveProgress:
    """Stop the flow from the source for good, and forecast what is lost now that it is final.

    Safe to repeat. After a crash behind it the flow stays paused: hold again, or release.

    Raises:
        ConflictError: something blocks the move; the flow is as it was.
        SrmError: the target does not answer.
    """
    found = read_salvage(context, plan.request)
    in_vain = _is_in_vain(plan.request, plan.topics, plan.group_names)
    blocking = plan.blocking if in_vain else tuple(_blocking(found, plan.groups))
    if blocking:
        raise ConflictError(f"move {plan.move_id} cannot start: {'; '.join(few(blocking))}")
    # RTO counts from here, by the clock that stamps all that clients say.
    begun_ms = context.now_ms()
    stamp = context.target.compacted(internal_topics.ROUTING).write({CLOCK_KEY: b"{}"})
    flow, switch = plan.request.flow, _switch(context)
    reason = f"unplanned {plan.request.operation} {plan.move_id}: {flow.source} is given up"
    switch.pause(Pause("", operator(context.host), reason, begun_ms, plan.move_id))
    unsealed = switch.seal(sorted({*found.copies.values()} - {*found.unserved}))
    unsealed |= dict.fromkeys(found.unserved, "it has no leader now")
    for copy, why in unsealed.items():
        log.warning("move %s: %s may still grow for a moment: %s", plan.move_id, copy, why)
    # Seals are the newest that stands in the copies: rates are those of before.
    final = replace(
        read_salvage(context, plan.request, for_forecast=True),
        groups=plan.group_names,
        recent=found.recent,
        newest=found.newest,
    )
    notes = tuple(f"{copy} may still grow for a moment: {why}" for copy, why in unsealed.items())
    forecast = replace(final.forecast(context.now_ms()), notes=notes)
    return MoveProgress(
        plan.move_id,
        times_ms={"holding": begun_ms},
        hold_stamp_ms=stamp,
        lag_at_hold={group.group: group.lag for group in final.plans},
        members_at_hold={group: final.followers(group) for group in plan.group_names},
        forecast=forecast,
        rpo_records=forecast.not_copied,
    )


def apply(context: MoveContext, plan: MovePlan, progress: MoveProgress) -> MoveProgress:
    """Set each group to its last checkpoint; return the progress with what became of that.

    A group that cannot be set (it has members on the target already, its coordinator refuses) does
    not keep the others from going on.

    Raises:
        SrmError: the target does not answer.
    """
    found = read_salvage(context, plan.request)
    moving = [group for group in found.plans if group.group in plan.group_names]
    left = _left_alone(found, moving)
    rows = {group.group: group.positions for group in moving if group.group not in left}
    decisions = apply_positions(context, plan, progress.attempt, rows)
    left |= {one.group: _why(one) for one in decisions if not one.in_place}
    intended = {
        group: {str(p.target): p.resume for p in some if p.resume is not None}
        for group, some in rows.items()
        if group not in left
    }
    skipped = {group.group: group.skipped for group in moving if group.group in intended}
    log.info("move %s: %d groups are set, %d are not", plan.move_id, len(intended), len(left))
    return progress.at(
        "applied", context.now_ms(), intended=intended, skipped=skipped, left_alone=left
    )


def status(context: MoveContext, plan: MovePlan, progress: MoveProgress) -> SyncStatus:
    """Say how far an unplanned move is: it waits for nothing, so it is ready once it is held."""
    held = progress.step in HELD
    applied = progress.step in {"applied", "going"}
    blocking = () if held else (f"move {plan.move_id} is {progress.step}: hold first",)
    forecast = progress.forecast or plan.forecast
    now_ms = context.now_ms()
    return SyncStatus(
        move_id=plan.move_id,
        ready=held,
        applied=applied,
        blocking=blocking,
        unapplied=() if applied else ("offsets are not applied yet",),
        remaining_records=0,
        groups=tuple(
            GroupSync(group, members_left=0, synchronised=held, applied=applied, remaining=0)
            for group in plan.group_names
        ),
        eta_seconds=0.0 if held else None,
        elapsed_seconds=max(0, now_ms - progress.times_ms.get("held", now_ms)) / 1000,
        timed_out=False,
        notes=tuple(f"group {g} is left as it is: {why}" for g, why in progress.left_alone.items()),
        rpo_records=forecast.not_copied if forecast else 0,
    )


def require_pause(context: MoveContext, plan: MovePlan) -> None:
    """Refuse to go where the flow has gone on since the hold: somebody has let it.

    Raises:
        ConflictError: the pause is not there, or this move does not rely on it.
        SrmError: the target does not answer.
    """
    standing = standing_pause(context.forward)
    if standing is None or plan.move_id not in standing.moves:
        raise ConflictError(
            f"flow {plan.request.flow} is not paused for move {plan.move_id} any more, somebody "
            f"has settled or released it: release the move and hold again, or plan it anew"
        )


def resume_flow(context: MoveContext, plan: MovePlan) -> None:
    """Let the flow go on that this move has paused, if no other move relies on the pause.

    Raises:
        SrmError: the target does not answer.
    """
    standing = standing_pause(context.forward)
    if standing is not None and plan.move_id in standing.moves:
        _switch(context).leave(plan.move_id)


def _switch(context: MoveContext) -> FlowSwitch:
    switch = context.forward.switch
    if switch is None:
        raise UsageError(f"flow {context.forward.config.flow} cannot be paused from here")
    return switch


def _there(found: Salvage, move_id: str) -> dict[str, str]:
    """Say of the topics and groups whose clients were sent elsewhere before where that is."""
    routes, request = found.routing.merged, found.request
    subjects = *map(topic_subject, found.topics), *map(group_subject, found.groups)
    return {
        subject: why
        for subject in subjects
        if (route := routes.get(subject)) is not None
        and route.state == "go"
        and (why := route_problem(subject, route, request, move_id)) is not None
    }


def _is_in_vain(request: MoveRequest, topics: Collection[str], groups: Collection[str]) -> bool:
    """Whether nothing of what was named is left to move: then nothing else moves in its stead."""
    is_named = bool(request.topics or request.groups)
    return is_named and not {*request.topics} & {*topics} and not {*request.groups} & {*groups}


def _without(found: Salvage, there: Collection[str]) -> Salvage:
    """Leave out the topics and groups whose clients are there already."""
    return replace(
        found,
        topics=tuple(topic for topic in found.topics if topic_subject(topic) not in there),
        groups=tuple(group for group in found.groups if group_subject(group) not in there),
    )


def _blocking(found: Salvage, groups: tuple[GroupPlan, ...]) -> Iterator[str]:
    request = found.request
    if not found.topics and not groups:
        yield f"flow {request.flow} has copied nothing, {request.target} has no topic that moves"
    if found.topics and not found.maps.reports:
        yield (
            f"flow {request.flow} has never copied anything to {request.target}: nothing is known "
            f"of {request.source}"
        )
    for group in groups:
        if group.group in found.target.errors:
            why = found.target.errors[group.group].text
            yield f"offsets of group {group.group} cannot be read: {why}"
        for position in group.positions:
            if problem := position_problem(group.group, position, request):
                yield problem


def _warnings(
    context: MoveContext, found: Salvage, groups: tuple[GroupPlan, ...], move_id: str
) -> Iterator[str]:
    yield from surrounding_warnings(
        found.request,
        found.topics,
        Surroundings(
            opposite_enabled=context.reverse.config.enabled,
            opposite_topics=topics_copied_back(context, found.topics),
            absent=absent_topics(Counter(tp.topic for tp in found.copies), found.target.topics),
        ),
    )
    # Those that are set up are called; nobody waits for the others.
    for problem in redirect_problems(context.forward, redirectors_of(context, found.request)):
        yield problem.text
    for group, why in _left_alone(found, groups).items():
        yield f"group {group} is left as it is: {why}"
    for plan in groups:
        if not plan.positions:
            yield (
                f"group {plan.group} has no checkpoint: where it starts on "
                f"{found.request.target} is left to auto.offset.reset of its clients; while "
                f"{found.request.source} answers: srm checkpoints emit --flow "
                f"'{found.request.flow}'"
            )
    if found.unserved:
        yield (
            f"{some([str(place) for place in found.unserved])} on {found.request.target} "
            f"{'has' if len(found.unserved) == 1 else 'have'} no leader now: groups go on at their "
            f"last checkpoint there, unseen, when somebody serves it again"
        )
    if overtaken := [plan for plan in groups if plan.skipped]:
        count = sum(plan.skipped for plan in overtaken)
        yield (
            f"{amount(len(overtaken), 'group')} ({some([p.group for p in overtaken])}) step "
            f"over {amount(count, 'record')} that {found.request.target} does not hold any more "
            f"and they may not have read"
        )
    routes = found.routing.merged
    held = {
        route.move_id
        for name in (*map(topic_subject, found.topics), *(group_subject(g.group) for g in groups))
        if (route := routes.get(name)) is not None and route.state == "hold"
    }
    for other in sorted(held - {move_id}):
        yield f"move {other} holds clients of this one: this one takes over from it"


def _left_alone(found: Salvage, groups: Sequence[GroupPlan]) -> dict[str, str]:
    """Groups that cannot be set because somebody runs on the target already."""
    left: dict[str, str] = {}
    for group in groups:
        there = found.target.group(group.group)
        if there.state not in IDLE:
            who = ", ".join(there.members) or there.reason or there.state
            left[group.group] = f"it is active on {found.request.target} ({who})"
    return left


def _why(one: SyncDecision) -> str:
    return f"{one.partition}: {one.action}{one.reason and ', '}{one.reason}"
