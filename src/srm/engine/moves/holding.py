"""Hold of the clients of a move, and its two possible ends: go and release.

The target's register decides. Go writes its intent on the source, then the decision on the target.
Release writes to the target, or if that is unavailable to the source, unless it has an intent. So a
release that reaches the target fences an undecided go. One that does not reach it is refused if a
go may have decided. docs/move-protocol.md describes the protocol.

An unplanned move first pauses the flow, so that nothing is copied when the source returns. Then it
seals the copies, which makes the loss final. Its attempt ranks above all attempts that the source
may have seen (:data:`~srm.domain.moves.routing.ERA`), so their routes and holds lose.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from srm.config.model import differences, key_of
from srm.domain.flow_state.replication_records import Pause
from srm.domain.moves.disaster import Forecast
from srm.domain.moves.gate import Presence
from srm.domain.moves.plan import MovePlan, offsets_to_write
from srm.domain.moves.progress import HELD, MoveProgress, run_again
from srm.domain.moves.report import beyond_approval
from srm.domain.moves.routing import LEASE_MS, Route, group_subject, is_home, next_generation
from srm.domain.moves.whereabouts import Whereabouts
from srm.domain.text.amount import reasons_text, some
from srm.engine.cluster_ports import CONTROL_ABORT_S, CONTROL_TRANSACTION_S, tolerate
from srm.engine.control.originals import create_originals
from srm.engine.flows.supervision import operator, pause_in_force
from srm.engine.moves import gate, reading
from srm.engine.moves.attempt import Attempt, InForce, homes_on_source
from srm.engine.moves.context import SIDES, MoveContext, read_both, sides_of
from srm.engine.moves.effects import (
    call_redirectors,
    enforce_fences,
    fence_if_possible,
    if_possible,
    lift_target,
    open_target,
    release_fence,
    require_in_force,
)
from srm.engine.moves.facts import Look, MoveFacts
from srm.engine.moves.history import ClientsHistory, RoutingHistory
from srm.engine.moves.losses import is_without_routes, reason_of_pause
from srm.engine.moves.planning import findings, plan_at_go, route_problem, settings_of
from srm.engine.moves.registers import Registers, record, transact
from srm.engine.moves.store import MoveStore
from srm.engine.moves.surroundings import absent_originals
from srm.engine.moves.tables import ControlChange, ControlTables, MoveRecords, accepted_key
from srm.errors import ConflictError, FencedError, GateClosedError, SrmError, UnavailableError
from srm.threads import start_thread

log = logging.getLogger(__name__)

_RENEW_S: Final = LEASE_MS / 3000


def hold(context: MoveContext, move_id: str) -> MoveProgress:
    """Hold all clients of the move: they stop, finish and leave. RTO counts from here.

    Both clusters are read first: blocking conditions stop the move before it affects any client.
    Repeated, it renews the hold, or begins the next attempt if that hold is over. A decided move
    stays. An unplanned one uses its target alone.
    ConflictError: something blocks it, settings changed since the plan, or a redirector has not
    confirmed the hold, which may be released or held again.
    """
    store = MoveStore.read(context)
    plan, progress = store.load(move_id)
    if progress.is_decided:
        return progress
    whole = store.plan(move_id) or plan
    started = None if _is_held(context, plan, progress) else _begin(context, whole)
    started = started and replace(started, carrier=context.process)

    def body(registers: Registers) -> MoveProgress:
        registers.require(*sides_of(plan.request))
        known = registers.store.progress(move_id)
        if started is not None and known.rank == progress.rank:
            _start(registers, whole, started, context)
        elif known.step in HELD:
            renew(registers, plan, context.now_ms())
        elif not known.is_decided:
            raise ConflictError(
                f"move {move_id} was released in the meantime: {context.hold_again(move_id)}"
            )
        return registers.store.progress(move_id)

    try:
        held = transact(context, f"hold of move {move_id}", body)
    except ConflictError:
        # A release may have come before the pause; a run that has planned again shares the pause.
        step = MoveStore.read(context).progress(move_id).step
        if plan.request.is_unplanned and step == "released":
            context.forward.own_switch.leave(move_id)
        raise
    if held.is_decided:
        return held
    plan = whole.without(held.left_out)
    with renewals(context, plan):
        missing = call_redirectors(context, plan)
    if missing:
        raise ConflictError(
            f"move {move_id}: {missing[0]}; nothing has moved. Fix this and "
            f"{context.hold_again(move_id)}, or '{context.command(f'release {move_id}')}'"
        )
    log.info("move %s: clients of %s are held", move_id, ", ".join(plan.topics))
    return held


def _is_held(context: MoveContext, plan: MovePlan, progress: MoveProgress) -> bool:
    if progress.step not in HELD:
        return False
    there = RoutingHistory.read(context.target)
    return not there.end_of_hold(plan.request, progress, context.now_ms())


def renew(
    registers: Registers,
    plan: MovePlan,
    now_ms: int,
    change: ControlChange | None = None,
    *,
    source_needed: bool = True,
) -> int | None:
    """Write a higher beat on the target, then on the source, with a change if it is given.

    Always higher than the beat of an earlier process, whose lease clients may already count. A move
    that holds no client is not changed. Returns the target broker's time of the beat, if any.
    ConflictError: the hold of a planned move is over.
    """
    known = registers.store.progress(plan.move_id)
    if known.step not in HELD:
        return None
    attempt = Attempt(plan, known)
    routes = registers.routes
    holds = [routes[one] for one in plan.subjects if attempt.is_held_by(routes.get(one))]
    beat = max((route.beat for route in holds), default=0) + 1
    # This finishes a hold that was killed between its writes to the two clusters.
    noted = [known.at("held", now_ms)] if known.step == "holding" else []
    there = registers.tables("target").routing
    if not plan.request.is_unplanned and (end := there.end_of_hold(plan.request, known, now_ms)):
        again = run_again(plan.request.flow, plan.move_id)
        raise ConflictError(f"move {plan.move_id}: {end}: hold it again ('{again}')")
    if known.hold_stamp_ms is None and (stamps := there.stamps("hold", known)) is not None:
        noted = [(noted or [known])[0].noting(hold_stamp_ms=stamps[0])]
    change = change or ControlChange()
    beats, progress = attempt.hold(beat, now_ms), (*noted, *change.progress)
    change = replace(change, routes=beats, progress=progress)
    stamp_ms = registers.write("target", change)
    if "source" in sides_of(plan.request):
        (registers.write if source_needed else registers.write_if_there)("source", change)
    return stamp_ms


@dataclass
class Lease:
    """Lease in which no held client continues on the source, as its process counts it.

    ``sent``: when its renewal was sent, by the monotonic clock; ``stamp_ms``: the broker's time.
    """

    sent: float = -math.inf
    stamp_ms: int | None = None

    def rest_s(self, clock: float) -> float:
        return self.sent + LEASE_MS / 1000 - clock


def renew_now(context: MoveContext, plan: MovePlan, lease: Lease | None = None) -> None:
    """Renew the hold of a move in its own transaction; an unavailable source gets it later.

    A lease is extended if it lasts until the source has the renewal: a client whose hold lapses
    after that finds it there.
    """

    def body(registers: Registers) -> Lease | None:
        sent = context.monotonic()
        stamp_ms = renew(registers, plan, context.now_ms(), source_needed=False)
        return Lease(sent, stamp_ms) if registers.there("source") else None

    what, limit_s = f"renewal of move {plan.move_id}", LEASE_MS / 1000
    renewed = transact(context, what, body, limit_s)
    if lease and renewed and lease.rest_s(context.monotonic()) > 0:
        lease.sent, lease.stamp_ms = renewed.sent, renewed.stamp_ms


@contextmanager
def renewals(context: MoveContext, plan: MovePlan, lease: Lease | None = None) -> Iterator[None]:
    """Renew the hold while a step lasts, however slow a cluster, up to the move's time limit."""
    over, renew = threading.Event(), partial(renew_now, context, plan, lease)

    def renew_until_over() -> None:
        for _ in range(math.ceil(plan.request.wait_seconds / _RENEW_S)):
            if over.wait(_RENEW_S):
                return
            if_possible(context.target, renew)

    thread = start_thread("srm-hold", renew_until_over)
    try:
        yield
    finally:
        over.set()
        thread.join(LEASE_MS / 1000)


def _begin(context: MoveContext, plan: MovePlan) -> MoveProgress:
    _require_settings(context, plan)
    if not plan.topics and not plan.group_names:
        raise ConflictError(f"move {plan.move_id} cannot start: {reasons_text(plan.blocking)}")
    # The plan has chosen and shown the topics and groups; new ones do not move.
    chosen, pinned = reading.MoveScope(plan.topics, plan.group_names), plan.request
    if not pinned.is_unplanned:
        pinned = replace(pinned, groups=chosen.groups)
    fresh = findings(context, pinned, plan.move_id, chosen)
    deleted = tuple(gate.deleted_topics(plan, fresh.facts))
    if not deleted and (lost := gate.lost_groups(plan, fresh.facts)):
        left = _begin(context, plan.without(lost))
        for group, why in lost.items():
            log.warning("move %s: group %s is left out: %s", plan.move_id, group, why)
        return replace(left, left_alone={**left.left_alone, **lost})
    if texts := (*(each.text for each in fresh.blocking), *deleted):
        raise ConflictError(f"move {plan.move_id} cannot start: {reasons_text(texts)}")
    if fresh.facts.is_away:
        _require_approved(context, plan, fresh.facts.forecast(context.now_ms()))
    create_originals(context.forward, absent_originals(context, fresh.facts))
    _remove_remnants(context, fresh.facts)
    if fresh.facts.is_away:
        return pause_flow(context, plan, fresh.facts)
    context.observations[plan.move_id] = gate.first_look(context, fresh.facts)
    return MoveProgress(
        plan.move_id,
        lag_at_hold={group.group: group.lag for group in fresh.facts.plans},
        members_at_hold={group.group: len(group.members) for group in fresh.facts.plans},
        log_ends_at_hold=gate.by_name(fresh.facts.original_ends()),
        left_alone=_late_groups(context, plan, fresh.facts),
    )


def _require_settings(context: MoveContext, plan: MovePlan) -> None:
    """Raise ConflictError with the keys of this host whose values are not those of the plan."""
    changed = [
        f"{flow}.{key_of(name)} was {before}, is {now}"
        for flow, settings in settings_of(context).items()
        for name, (before, now) in differences(plan.settings.get(flow, {}), settings).items()
    ]
    if changed:
        raise ConflictError(
            f"move {plan.move_id} was planned with other settings: {reasons_text(changed)}; "
            "correct the file here, or plan the move again"
        )


def _remove_remnants(context: MoveContext, facts: MoveFacts) -> None:
    """Remove the members of sessions that the target had before its brokers died."""
    for group in facts.groups:
        if ids := facts.remnants(group):
            target, who = context.target, some(facts.target.group(group).members)
            log.info("group %s: removing %s from %s", group, who, target.alias)
            if_possible(target, partial(target.remove_members, group, ids))


def leave_out(context: MoveContext, plan: MovePlan, look: Look) -> None:
    """Leave out of an attempt the groups whose offsets a look did not find; release their clients.

    Nothing is written for an attempt that has ended since, or a move without any other group.
    """
    if look.lost.keys() >= {*plan.group_names}:
        return
    subjects = {*map(group_subject, look.lost)}

    def write(registers: Registers) -> None:
        registers.require(*SIDES)
        known = registers.store.progress(plan.move_id)
        if known.attempt != look.progress.attempt or known.step not in HELD:
            return
        routes = Attempt(plan, known).release(context.now_ms())
        released = {one: route for one, route in routes.items() if one in subjects}
        change = ControlChange(released, (known.leaving_out(look.lost, subjects),))
        for side in SIDES:
            registers.write(side, change)

    transact(context, f"groups that move {plan.move_id} leaves out", write)
    for group, why in look.lost.items():
        log.warning("move %s: group %s is left out: %s", plan.move_id, group, why)


def _late_groups(context: MoveContext, plan: MovePlan, facts: MoveFacts) -> dict[str, str]:
    """Return the groups that only a plan of now would move, with the reason why they stay.

    An approval may take an hour.
    """
    request, routing = plan.request, facts.routing
    if request.groups:
        return {}
    if facts.is_away:
        found = reading.groups_after_loss(context, request, facts.away, routing)
        why = f"known on {request.target} only since the plan: plan a move with --group"
    else:
        found = reading.groups_on_source(context, request, plan.topics).groups
        why = f"reads on {request.source} only since the plan: start it on {request.target}"
    late = {
        group: why
        for group in found
        if group not in plan.group_names
        if routing.where.homes_on(group_subject(group), request.source)
    }
    now = reading.read_facts(context, request, plan.topics, late) if late else facts
    late = {group: why for group in late if not now.is_at_home_there(group)}
    for group in late:
        log.warning("move %s: group %s is left out: %s", plan.move_id, group, why)
    return late


def _start(
    registers: Registers, plan: MovePlan, started: MoveProgress, context: MoveContext
) -> None:
    """Write the first records of an attempt: first on the source, which shows competing holds."""
    if registers.store.plan(plan.move_id) != plan:
        again = context.hold_again(plan.move_id)
        raise ConflictError(f"move {plan.move_id} was planned again in the meantime: {again}")
    plan = plan.without(started.left_alone)
    routes, known = registers.routes, registers.store.progress(plan.move_id)
    said, _ = read_both(context, ClientsHistory.read)
    acks = [one for side in said for one in side.acks]
    tables = [registers.tables(side).routes for side in SIDES]
    where = Whereabouts(tables, Presence(acks, context.now_ms()))
    concerned = {subject: routes.get(subject) for subject in (*plan.subjects, *plan.home_subjects)}
    unplanned, now_ms = plan.request.is_unplanned, context.now_ms()
    for subject, route in concerned.items():
        # Another move may have started since the plan; an unplanned one takes over from any hold.
        is_taken = subject in plan.home_subjects or (route and route.state == "hold")
        reason = route_problem(subject, route, where, plan.request, plan.move_id)
        if reason and not (unplanned and is_taken):
            raise ConflictError(f"move {plan.move_id} cannot start: {reason}")
    seen = {one.ack.generation for one in acks if one.ack.subject in concerned}  # also on others
    # Routes may be lost, with their topic; clients keep what they have read.
    lost = [line for line in registers.store.lines() if is_without_routes(line, routes)]
    moved = [registers.store.progress(line.move_id) for line in lost]
    seen |= {one.attempt for one in moved if not concerned.keys().isdisjoint(one.homes)}
    ranked = [*concerned.values(), *(routes[subject] for subject in routes if is_home(subject))]
    others = [one for one in ranked if one and one.move_id != plan.move_id]
    knew = next_generation(others, known.knew, *(seen - {known.attempt})) - 1
    begun_ms = (started.hold_stamp_ms or now_ms) if unplanned else 0
    generation = next_generation(ranked, knew, known.attempt, unplanned_ms=begun_ms)
    homes = homes_on_source(plan, where)
    started = replace(started, attempt=generation, revision=known.revision, homes=homes, knew=knew)
    hold_routes, holding = Attempt(plan, started).hold(1, now_ms), started.at("holding", now_ms)
    if not unplanned:
        registers.write("source", ControlChange(hold_routes, (holding,)))
    registers.write("target", ControlChange(hold_routes, (holding.at("held", now_ms),)))


def pause_flow(context: MoveContext, plan: MovePlan, before: MoveFacts) -> MoveProgress:
    """Pause the flow from the source, seal its copies, and forecast the now final loss.

    Safe to repeat. After a crash the flow stays paused: hold again, or release.
    """
    begun_ms = context.now_ms()  # RTO counts from here
    switch, reason = context.forward.own_switch, reason_of_pause(plan)
    wanted = Pause(secrets.token_hex(8), operator(context.host), reason, begun_ms, plan.move_id)
    _leave_if_late(context, plan, switch.pause(wanted))
    unsealed = switch.seal(sorted({*before.away.copies.values()} - {*before.without_leader}))
    unsealed |= dict.fromkeys(before.without_leader, "it has no leader now")
    notes = tuple(f"{copy} may still grow for a moment: {why}" for copy, why in unsealed.items())
    for note in notes:
        log.warning("move %s: %s", plan.move_id, note)
    chosen = reading.MoveScope(plan.topics, plan.group_names)
    final = reading.read_outlook(context, reading.read_target(context, plan.request, chosen))
    # The seals are now the newest records of the copies, so rates come from the earlier look. The
    # pause ends the assignments, so the partitions and the growth that slots see do, too.
    earlier = ("recent", "newest", "copies", "growth")
    known = {name: getattr(before.away, name) for name in earlier}
    final = replace(final, source=replace(final.away, **known))
    forecast = replace(final.forecast(context.now_ms()), notes=notes)
    try:
        _require_approved(context, plan, forecast)
    except ConflictError:
        switch.leave(plan.move_id)
        raise
    return MoveProgress(
        plan.move_id,
        times_ms={"holding": begun_ms},
        hold_stamp_ms=begun_ms,
        lag_at_hold={group.group: group.lag for group in before.plans},
        members_at_hold={group: before.followers(group) for group in plan.group_names},
        forecast=forecast,
        left_alone=_late_groups(context, plan, final),
    )


def _require_approved(context: MoveContext, plan: MovePlan, forecast: Forecast) -> None:
    """Raise ConflictError if more may be lost than the newest approval accepts."""
    if reason := beyond_approval(MoveStore.read(context).approvals(plan.move_id), forecast):
        raise ConflictError(
            f"move {plan.move_id}: {reason}: nothing was done; plan it again, and approve that plan"
        )


def _leave_if_late(context: MoveContext, plan: MovePlan, before: Pause | None) -> None:
    """Leave a pause that was not that of a decided move ``before``: the move is settled."""
    if before is not None and plan.move_id in before.moves:
        return
    if MoveStore.read(context).progress(plan.move_id).is_decided:
        context.forward.own_switch.leave(plan.move_id)
        raise ConflictError(
            f"move {plan.move_id} was decided and settled in the meantime: see "
            f"'{context.command(f'report {plan.move_id}')}'"
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
        new = replace(pause, request=secrets.token_hex(8))
        context.forward.own_switch.pause(new, pause.request)
    except ConflictError as error:
        raise FencedError(str(error)) from error


def go(context: MoveContext, move_id: str) -> MoveProgress:
    """Send all clients to the target if the gate is open, which is read from the clusters here.

    Order: the hold is renewed to outlast the rest, the gate is checked, the intent is written on
    the source, and last the decision, with the routes, on the target. Other redirectors are called
    after that. :func:`verify` and a repeated go call a failed one again.
    GateClosedError: a group is not synchronised, or the hold would not last; clients stay where
    they are. ConflictError: it was decided, and its clients follow a later move.
    """
    plan, progress = MoveStore.read(context).load(move_id)
    gone = _look_again(context, plan, _decide(context, plan, progress))
    if_possible(context.target, lambda: lift_target(context, plan, gone.attempt))  # of a late one
    try:
        missing = call_redirectors(context, plan)
    except SrmError as error:
        missing = (f"redirectors could not be called: {error}",)
    for line in missing:
        log.warning("move %s: %s; it is called again", move_id, line)
    fence_if_possible(context, plan)  # of a planned move, too: a killed release may have lifted it
    return gone


def _look_again(context: MoveContext, plan: MovePlan, gone: MoveProgress) -> MoveProgress:
    """Record which clients follow a later move: an unplanned one may be decided during go."""
    trouble = f"later moves of clients of move {plan.move_id} are unknown"
    now = tolerate(lambda: InForce.read(context, plan), trouble)
    if now is None or not now.later:
        return gone
    gone = MoveStore.read(context).progress(plan.move_id).noting(superseded=now.later)
    record(context, ControlChange(progress=(gone,)))
    if now.later.keys() >= {*plan.subjects}:
        require_in_force(context, plan, gone)
    log.warning("move %s: superseded for %s", plan.move_id, some(sorted(now.later)))
    return gone


def _decide(context: MoveContext, plan: MovePlan, progress: MoveProgress) -> MoveProgress:
    move_id, what = plan.move_id, f"go of move {plan.move_id}"
    registers = Registers(context)

    def prepare() -> Lease:
        known = registers.store.progress(move_id)
        if known.step in HELD and known.attempt == progress.attempt:
            return Lease(context.monotonic(), renew(registers, plan, context.now_ms()))
        return Lease()

    lease = registers.run(what, prepare)
    # Opening has updated the source, if it was unavailable when clients were redirected.
    known = registers.store.progress(move_id)
    if known.is_decided:
        require_in_force(context, plan, known)
        return known
    decide = partial(_go_unplanned, registers, context, plan)
    if not plan.request.is_unplanned:
        with renewals(context, plan, lease):
            seen = gate.patient_look(context, plan, known)
            closed = seen.status.blocking + seen.status.unapplied
            gate.require(closed, plan, "clients may not go")
            create_originals(context.forward, absent_originals(context, seen.facts))
        groups, ends = seen.facts.plans, seen.facts.original_ends()
        ids = {tp.topic: seen.facts.source.topics[tp.topic].topic_id for tp in ends}
        going = seen.progress.at(
            "going",
            context.now_ms(),
            carrier=context.process,
            log_ends_at_go=gate.by_name(ends),
            topic_ids_at_go=ids,
            rpo_records=seen.status.rpo_records,
            missing=seen.status.missing,
            renewed_stamp_ms=lease.stamp_ms,
            commits_at_go={one.group: gate.commits_of(seen.facts, one.group) for one in groups},
            intended={one.group: offsets_to_write(one.positions) for one in groups},
        )
        kept = plan_at_go(context, plan, registers.store.plan_at_go(plan), seen.facts)
        decide = partial(_go_planned, registers, context, going, lease, plan, kept)
    try:
        gone = registers.run(what, decide)
    except (ConflictError, GateClosedError):
        if_possible(context.target, lambda: enforce_fences(context.target, plan.topics))
        raise
    log.info("move %s: clients go to %s", move_id, plan.request.target)
    return gone


def _go_unplanned(registers: Registers, context: MoveContext, plan: MovePlan) -> MoveProgress:
    """Decide on the target alone. The hold may lapse: its clients do not return to the source."""
    known = registers.store.progress(plan.move_id)
    if known.is_decided:
        return known
    registers.require("target")
    if known.step not in {"applied", "going"}:
        first = "apply first" if known.step in HELD else context.hold_again(plan.move_id)
        raise GateClosedError(f"move {plan.move_id} is {known.step}: {first}")
    attempt = Attempt(plan, known)
    for subject, route in _not_held(registers.tables("target"), attempt).items():
        # Records of this move would have the lower rank, so clients would ignore them.
        raise ConflictError(
            f"move {plan.move_id} no longer holds {subject}, "
            f"{f'move {route.move_id} does' if route else 'no move does'}: continue with that one "
            f"('{context.command('status')}'), or release this one and hold again"
        )
    renew_pause(context, plan)
    now_ms = context.now_ms()
    gone, opened = known.at("gone", now_ms, carrier=context.process), dict[str, bytes]()
    if_possible(context.target, lambda: opened.update(open_target(context, plan)))
    registers.write("target", ControlChange(attempt.go(now_ms), (gone,), opened))
    return gone


def _not_held(tables: ControlTables, attempt: Attempt) -> dict[str, Route | None]:
    routes = {subject: tables.routes.get(subject) for subject in attempt.plan.subjects}
    return {one: route for one, route in routes.items() if not attempt.is_held_by(route)}


def _go_planned(
    registers: Registers,
    context: MoveContext,
    going: MoveProgress,
    lease: Lease,
    plan: MovePlan,
    kept: MovePlan,
) -> MoveProgress:
    """Write intent and decision of the attempt that was looked at, or return another's decision."""
    attempt, now_ms = Attempt(plan, going), context.now_ms()
    known = registers.store.progress(plan.move_id)
    if known.is_decided:
        return known
    for side in SIDES:
        registers.require(side)
        alias, again = getattr(plan.request, side), context.hold_again(plan.move_id)
        _require_held(registers.tables(side), attempt, alias, again)
    # After this a release that reaches only the source is refused.
    registers.write("source", ControlChange(progress=(going,)))
    gone = going.at("gone", now_ms)
    change = ControlChange(attempt.go(now_ms), (gone,), {accepted_key(plan.move_id): kept.value()})

    def require_lease() -> None:
        """Refuse to commit if a pause of this process could outlast the lease.

        The transaction is already open: brokers abort it after its timeout.
        """
        left = lease.rest_s(context.monotonic())
        if left <= CONTROL_TRANSACTION_S + CONTROL_ABORT_S:
            raise GateClosedError(
                f"move {plan.move_id}: only {max(0.0, left):.0f} s of the hold's "
                f"{LEASE_MS / 1000:.0f} s are left after the check, so clients could resume "
                f"before the decision: call go again"
            )

    opened = replace(change, documents={**change.documents, **open_target(context, plan)})
    registers.write("target", opened, before_commit=require_lease)
    registers.write_if_there("source", change)
    return gone


def _require_held(tables: ControlTables, attempt: Attempt, alias: str, again: str) -> None:
    lost, known = list(_not_held(tables, attempt)), tables.moves.progress.get(attempt.plan.move_id)
    if lost or known is None or known.step not in HELD:
        which = ", ".join(lost[:3]) or "the move"
        raise GateClosedError(
            f"move {attempt.plan.move_id}: the hold of {which} on {alias} is over: {again}"
        )


def release(context: MoveContext, move_id: str, why: str = "") -> MoveProgress:
    """End the hold and let clients continue on the source: the abort before go, safe to repeat.

    One cluster is enough; the other is written when it is back. Offsets already applied on the
    target stay: the ledger marks them as srm's own. The flow that an unplanned move has paused
    resumes. ConflictError: clients are, or may already be, redirected to the target.
    UnavailableError: it is released, but a redirector has not confirmed that, or a fence is left.
    """
    plan, progress = MoveStore.read(context).load(move_id)
    require_in_force(context, plan, progress)
    # Clients that return must be able to write.
    fence_errors = () if progress.is_decided else release_fence(context, plan, is_over=False)
    why = why or _last_wait(context, progress)
    try:
        released = transact(
            context,
            f"release of move {move_id}",
            lambda registers: _release(registers, plan, context.now_ms(), why),
        )
    except ConflictError:
        fence_if_possible(context, plan)
        raise
    # A concurrent wait has seen the hold until now and may have set the fence again. A later
    # attempt may have done so too, and needs it.
    fence_errors = fence_errors or release_fence(context, plan, is_over=True)
    if plan.request.is_unplanned:
        context.forward.own_switch.leave(move_id)
        store = MoveStore.read(context)
        for line in store.lines():  # that it has taken over
            if line.progress.step in HELD and line.request.source == plan.request.source:
                fence_if_possible(context, store.load(line.move_id)[0], sets=False)
    if missing := (*fence_errors, *call_redirectors(context, plan)):
        raise UnavailableError(
            f"move {move_id} is released, but {'; '.join(missing)}: repeat "
            f"'{context.command(f'release {move_id}')}', or redirect its clients to "
            f"{plan.request.source} manually"
        )
    return released


def _last_wait(context: MoveContext, progress: MoveProgress) -> str:
    """Return what an attempt was waiting for at its last look; a failure is only logged."""
    trouble = f"what move {progress.move_id} waited for is not known"
    known = tolerate(lambda: MoveRecords.read(context.target), trouble, SrmError)
    note = known and known.notes.get(progress.move_id)
    waits = note.waits if note and note.attempt == progress.attempt else ()
    return f"released while it waited: {'; '.join(waits)}" if waits else ""


def _release(registers: Registers, plan: MovePlan, now_ms: int, why: str) -> MoveProgress:
    request, progress = plan.request, registers.store.progress(plan.move_id)
    if progress.is_decided:
        raise ConflictError(
            f"move {plan.move_id} has already sent clients to {request.target}: move them back "
            f"with a move from {request.target} to {request.source}"
        )
    if progress.step in {"planned", "released"}:
        # Opening has written what an earlier release could not.
        if (
            not request.is_unplanned
            and progress.step == "planned"
            and not registers.there("source")
        ):
            raise UnavailableError(
                f"move {plan.move_id} holds no client on {request.target}, and {request.source} "
                f"does not answer: clients held there resume by themselves when the hold is "
                f"{LEASE_MS / 1000:.0f} s old"
            )
        if request.is_unplanned:
            # Its hold may be in progress: it has paused the flow, which resumes now.
            progress = progress.at("released", now_ms, reason=why)
            registers.write("target", ControlChange(progress=(progress,)))
        return progress
    if not registers.there("target") and progress.step == "going":
        raise ConflictError(
            f"move {plan.move_id} was about to send clients to {request.target}, which does not "
            f"answer and may have decided so: release it when {request.target} is back. Clients "
            f"resume on {request.source} by themselves when the hold is "
            f"{LEASE_MS / 1000:.0f} s old, unless they were redirected"
        )
    released = progress.at("released", now_ms, reason=why)
    routes = Attempt(plan, progress).release(now_ms)
    first, *rest = [side for side in SIDES if registers.there(side)]
    registers.write(first, ControlChange(routes, (released,)))
    for side in rest:
        registers.write_if_there(side, ControlChange(routes, (released,)))
    log.info("move %s: released, clients continue on %s", plan.move_id, request.source)
    return released
