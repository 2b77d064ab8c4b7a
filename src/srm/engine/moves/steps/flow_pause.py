"""Pause of the flow from a lost source, so that nothing is copied automatically on its return.

The flow is paused first, then its copies are sealed, which makes the loss final. The attempt of the
move ranks above all attempts that the source may have seen
(:data:`~srm.domain.moves.routing.routes.ERA`), so its old routes and holds lose when it returns.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import replace

from srm.domain.flow_state.pause import Pause
from srm.domain.moves.records.plan import MovePlan
from srm.domain.moves.records.progress import MoveProgress
from srm.domain.moves.routing.routes import CLOCK_KEY
from srm.domain.names import internal_topics
from srm.engine.flows.operator import operator
from srm.engine.flows.supervision import pause_in_force
from srm.engine.moves.control.move_records import MoveContext, MoveStore
from srm.engine.moves.planning.outlook import Outlook, read_outlook
from srm.engine.moves.planning.topics import MoveScope
from srm.engine.ports import FlowSwitch
from srm.errors import ConflictError, FencedError, UsageError

log = logging.getLogger(__name__)


def pause_flow(context: MoveContext, plan: MovePlan, before: Outlook) -> MoveProgress:
    """Pause the flow from the source, seal its copies, and forecast the now final loss.

    Safe to repeat. After a crash the flow stays paused: hold again, or release.

    ``before``: the look that found no blocking condition.
    """
    # RTO counts from here, by the clock that stamps clients' acknowledgements.
    begun_ms = context.now_ms()
    stamp = context.target.compacted_topic(internal_topics.ROUTING).write({CLOCK_KEY: b"{}"})
    flow, switch = plan.request.flow, _switch(context)
    reason = f"unplanned {plan.request.operation} {plan.move_id}: {flow.source} is lost"
    wanted = Pause(secrets.token_hex(8), operator(context.host), reason, begun_ms, plan.move_id)
    switch.pause(wanted)
    _leave_if_late(context, plan, wanted)
    unsealed = switch.seal(sorted({*before.copies.values()} - {*before.without_leader}))
    unsealed |= dict.fromkeys(before.without_leader, "it has no leader now")
    notes = tuple(f"{copy} may still grow for a moment: {why}" for copy, why in unsealed.items())
    for note in notes:
        log.warning("move %s: %s", plan.move_id, note)
    chosen = MoveScope(plan.topics, plan.group_names)
    final = read_outlook(context, plan.request, chosen=chosen)
    # The seals are now the newest records of the copies, so rates come from the earlier look.
    final = replace(final, recent=before.recent, newest=before.newest)
    forecast = replace(final.forecast(context.now_ms()), notes=notes)
    return MoveProgress(
        plan.move_id,
        times_ms={"holding": begun_ms},
        hold_stamp_ms=stamp,
        lag_at_hold={group.group: group.lag for group in before.plans},
        members_at_hold={group: final.followers(group) for group in plan.group_names},
        forecast=forecast,
    )


def _leave_if_late(context: MoveContext, plan: MovePlan, ours: Pause) -> None:
    """End a new pause of a decided move: another process has finished it, and it is settled."""
    if pause_in_force(context.forward) != ours:
        return  # it was there before, or others rely on it
    if MoveStore(context).progress(plan.move_id).is_decided:
        _switch(context).resume(request=ours.request)
        raise ConflictError(
            f"move {plan.move_id} was decided and settled in the meantime: see "
            f"'srm failover report {plan.move_id}'"
        )


def renew_pause(context: MoveContext, plan: MovePlan) -> None:
    """Renew the pause before go, so that no settlement that has looked at it can still end it.

    Raises:
        ConflictError: the flow is not paused, or this move does not rely on the pause.
        FencedError: the pause has changed since it was read.
    """
    pause = pause_in_force(context.forward)
    if pause is None or plan.move_id not in pause.moves:
        raise ConflictError(
            f"flow {plan.request.flow} is no longer paused for move {plan.move_id}, it was "
            f"settled or released: release the move and hold again, or plan it again"
        )
    try:
        _switch(context).pause(replace(pause, request=secrets.token_hex(8)), pause.request)
    except ConflictError as error:
        raise FencedError(str(error)) from error


def resume_flow(context: MoveContext, plan: MovePlan) -> None:
    """Resume the flow that this move has paused, if no other move relies on the pause."""
    pause = pause_in_force(context.forward)
    if pause is not None and plan.move_id in pause.moves:
        _switch(context).leave(plan.move_id)


def _switch(context: MoveContext) -> FlowSwitch:
    switch = context.forward.switch
    if switch is None:
        raise UsageError(f"flow {context.forward.config.flow} cannot be paused from here")
    return switch
