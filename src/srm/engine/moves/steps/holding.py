"""Hold of the clients of a move, its renewal, and the pause of the flow from a lost source.

An unplanned move first pauses the flow, so that nothing is copied when the source returns. Then it
seals the copies, which makes the loss final. Its attempt ranks above all attempts that the source
may have seen (:data:`~srm.domain.moves.routing.routes.ERA`), so their routes and holds lose.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from srm.domain.flow_state.pause import Pause
from srm.domain.moves.records.plan import MovePlan
from srm.domain.moves.records.progress import HELD, MoveProgress
from srm.domain.moves.routing.routes import CLOCK_KEY, Route, next_generation
from srm.domain.names import internal_topics
from srm.domain.text.amount import few
from srm.engine.flows.operator import operator
from srm.engine.flows.supervision import pause_in_force
from srm.engine.moves.control.move_records import (
    ControlChange,
    ControlTables,
    MoveContext,
    MoveStore,
    config_fingerprint,
)
from srm.engine.moves.control.registers import Registers, sides_of
from srm.engine.moves.control.routes import Attempt
from srm.engine.moves.planning.outlook import Outlook, read_outlook
from srm.engine.moves.planning.plan import findings
from srm.engine.moves.planning.problems import route_problem
from srm.engine.moves.planning.reading import MoveScope
from srm.engine.moves.steps.gate_reading import by_name, first_look
from srm.engine.moves.steps.redirector_calls import call_redirectors
from srm.engine.ports import FlowSwitch
from srm.errors import ConflictError, FencedError, SrmError, UsageError

log = logging.getLogger(__name__)

_FORGET_MS = 3_600_000
"""Acknowledgements of clients that are silent for this long are deleted."""


def hold(context: MoveContext, move_id: str) -> MoveProgress:
    """Hold all clients of the move: they stop, finish and leave. RTO counts from here.

    Both clusters are read first, so that blocking conditions stop the move before it affects any
    client. Repeated, it renews the hold. A decided move is not changed. An unplanned move abandons
    its source: it reads and writes only the target.

    Raises:
        ConflictError: something blocks it, settings changed since the plan, or a redirector has not
            confirmed the hold, which may be released or held again.
    """
    plan, progress = MoveStore(context).load(move_id)
    if progress.is_decided:
        return progress
    started = None if progress.step in HELD else _begin(context, plan)
    with _leaving_the_pause(context, plan), Registers(context) as registers:

        def body() -> MoveProgress:
            registers.require(*sides_of(plan.request))
            known = registers.progress(move_id)
            if known.step in HELD:
                renew(registers, plan, context.now_ms())
            elif not known.is_decided:
                if started is None or known.rank != progress.rank:
                    raise ConflictError(
                        f"move {move_id} was released in the meantime: hold it again"
                    )
                if registers.plan(move_id) != plan:
                    raise ConflictError(
                        f"move {move_id} was planned again in the meantime: hold it again"
                    )
                _start(registers, plan, started, context.now_ms())
            return registers.progress(move_id)

        held = registers.run(f"hold of move {move_id}", body)
    if held.is_decided:
        return held
    if missing := call_redirectors(context, plan, meanwhile=lambda: _renew_once(context, plan)):
        raise ConflictError(
            f"move {move_id}: {missing[0]}; nothing has moved. Fix this and hold again, "
            f"or 'srm failover release {move_id}'"
        )
    log.info("move %s: clients of %s are held", move_id, ", ".join(plan.topics))
    return held


@contextmanager
def _leaving_the_pause(context: MoveContext, plan: MovePlan) -> Iterator[None]:
    """Resume the flow if the hold is refused: a release may have come before the pause."""
    try:
        yield
    except ConflictError:
        if plan.request.is_unplanned:
            resume_flow(context, plan)
        raise


def renew(
    registers: Registers,
    plan: MovePlan,
    now_ms: int,
    progress: MoveProgress | None = None,
    *,
    source_needed: bool = True,
) -> int | None:
    """Write a higher beat on the target, then on the source, with the progress if it is given.

    Always higher than the beat of an earlier process, whose lease clients may already count. A move
    that holds no client is not changed. Returns the time of the beat by the target's broker, None
    if it does not stamp records.
    """
    known = registers.progress(plan.move_id)
    if known.step not in HELD:
        return None
    attempt = Attempt(plan, known.attempt)
    routes = registers.routes
    holds = [routes[one] for one in plan.subjects if attempt.is_held_by(routes.get(one))]
    beat = max((route.beat for route in holds), default=0) + 1
    # This finishes a hold that was killed between its writes to the two clusters.
    noted = [known.at("held", now_ms)] if known.step == "holding" else []
    stamp = registers.tables("target").holds.get((plan.move_id, known.attempt))
    if known.hold_stamp_ms is None and stamp is not None:
        noted = [(noted or [known])[0].noting(hold_stamp_ms=stamp)]
    change = ControlChange(attempt.hold(beat, now_ms), (*noted, *([progress] if progress else [])))
    stamp_ms = registers.write("target", change)
    if "source" in sides_of(plan.request):
        (registers.write if source_needed else registers.write_if_there)("source", change)
    return stamp_ms


def renew_now(context: MoveContext, plan: MovePlan) -> None:
    """Renew the hold of a move in its own transaction; an unavailable source gets it later."""
    with Registers(context) as registers:
        registers.run(
            f"renewal of move {plan.move_id}",
            lambda: renew(registers, plan, context.now_ms(), source_needed=False),
        )


def _renew_once(context: MoveContext, plan: MovePlan) -> None:
    try:
        renew_now(context, plan)
    except SrmError as error:  # go renews the hold too, and checks that it is in force
        log.warning("the hold of move %s was not renewed: %s", plan.move_id, error)


def _begin(context: MoveContext, plan: MovePlan) -> MoveProgress:
    if plan.fingerprint != config_fingerprint(context):
        raise ConflictError(
            f"settings of {plan.request.flow} or its reverse changed since move {plan.move_id} "
            f"was planned: plan it again"
        )
    if not plan.topics and not plan.group_names:
        raise ConflictError(f"move {plan.move_id} cannot start: {'; '.join(few(plan.blocking))}")
    # The plan has chosen and shown the topics and groups; new ones do not move.
    pinned = replace(plan.request, topics=plan.topics, groups=plan.group_names)
    chosen = MoveScope(plan.topics, plan.group_names)
    fresh = findings(context, pinned, plan.move_id, chosen)
    fresh.require_none(plan.move_id)
    if fresh.outlook is not None:
        return pause_flow(context, plan, fresh.outlook)
    context.observations[plan.move_id] = first_look(context, fresh.facts)
    return MoveProgress(
        plan.move_id,
        lag_at_hold={group.group: group.lag for group in fresh.facts.plans},
        members_at_hold={group.group: len(group.members) for group in fresh.facts.plans},
        log_ends_at_hold=by_name(fresh.facts.original_ends()),
    )


def _start(registers: Registers, plan: MovePlan, started: MoveProgress, now_ms: int) -> None:
    """Write the first records of an attempt: first on the source, which shows competing holds."""
    routes, known = registers.routes, registers.progress(plan.move_id)
    concerned = {subject: routes.get(subject) for subject in (*plan.subjects, *plan.home_subjects)}
    unplanned = plan.request.is_unplanned
    if not unplanned:  # an unplanned move takes over from any hold
        _require_free(concerned, plan)
    generation = next_generation(concerned.values(), known.attempt, unplanned=unplanned)
    hold_routes = Attempt(plan, generation).hold(1, now_ms)
    numbered = replace(started, attempt=generation, revision=known.revision)
    holding = numbered.at("holding", now_ms)
    if not unplanned:
        old = _silent(registers.tables("source"), plan, now_ms)
        registers.write("source", ControlChange(hold_routes, (holding,), forget=old))
    old = _silent(registers.tables("target"), plan, now_ms)
    registers.write("target", ControlChange(hold_routes, (holding.at("held", now_ms),), forget=old))


def _require_free(concerned: Mapping[str, Route | None], plan: MovePlan) -> None:
    """Repeat the route checks of the plan: another move may have started since."""
    for subject, route in concerned.items():
        if reason := route_problem(subject, route, plan.request, plan.move_id):
            raise ConflictError(f"move {plan.move_id} cannot start: {reason}")


def _silent(tables: ControlTables, plan: MovePlan, now_ms: int) -> list[bytes]:
    """Return the keys of old acknowledgements of this move's clients, by the broker's clock."""
    prefixes = tuple(f"ack:{subject}:".encode() for subject in plan.subjects)
    return [
        key
        for key, said_ms in tables.acks.items()
        if key.startswith(prefixes) and now_ms - said_ms > _FORGET_MS
    ]


def pause_flow(context: MoveContext, plan: MovePlan, before: Outlook) -> MoveProgress:
    """Pause the flow from the source, seal its copies, and forecast the now final loss.

    Safe to repeat. After a crash the flow stays paused: hold again, or release.
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

    A FencedError means that it has changed since it was read.
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
