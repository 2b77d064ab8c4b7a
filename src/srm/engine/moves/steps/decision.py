"""Go and release, the two possible ends of an attempt's hold.

The target's register decides. Go writes its intent on the source, then the decision on the target.
Release writes to the target, or if that is unavailable to the source, unless it has an intent. So a
release that reaches the target fences an undecided go. One that does not reach it is refused if a
go may have decided. docs/move-protocol.md describes the protocol.
"""

from __future__ import annotations

import logging

from srm.domain.moves.records.plan import MovePlan
from srm.domain.moves.records.progress import HELD, MoveProgress
from srm.domain.moves.routing.routes import CLOCK_KEY, LEASE_MS, Route
from srm.domain.names import internal_topics
from srm.domain.text.amount import some
from srm.engine.moves.control.fence import (
    fence_if_possible,
    lift_target,
    lift_target_if_possible,
    release_fence,
    require_in_force,
)
from srm.engine.moves.control.move_records import (
    ControlChange,
    ControlTables,
    MoveContext,
    MoveStore,
)
from srm.engine.moves.control.registers import SIDES, Registers, record
from srm.engine.moves.control.routes import Attempt, InForce
from srm.engine.moves.steps.gate_reading import Look, by_name, commits_of, patient_look, require
from srm.engine.moves.steps.holding import renew, renew_pause, resume_flow
from srm.engine.moves.steps.redirector_calls import call_redirectors
from srm.engine.table_ports import CONTROL_ABORT_S, CONTROL_TRANSACTION_S
from srm.errors import ConflictError, GateClosedError, SrmError, UnavailableError

log = logging.getLogger(__name__)


def go(context: MoveContext, move_id: str) -> MoveProgress:
    """Send all clients to the target if the gate is open, which is read from the clusters here.

    Order: the hold is renewed to outlast the rest, the gate is checked, the intent is written on
    the source, and last the decision, with the routes, on the target. Other redirectors are called
    after that. :func:`verify` and a repeated go call a failed one again. After the decision a
    repeated call only finishes the rest.

    Raises:
        GateClosedError: a group is not synchronised, or the hold would not last; clients stay
            where they are.
        ConflictError: it was decided, and its clients follow a later move.
    """
    plan, progress = MoveStore(context).load(move_id)
    gone = _look_again(context, plan, _decide(context, plan, progress))
    lift_target_if_possible(context, plan)  # a late process may have set a fence since
    try:
        missing = call_redirectors(context, plan)
    except SrmError as error:
        missing = (f"redirectors could not be called: {error}",)
    for line in missing:
        log.warning("move %s: %s; it is called again", move_id, line)
    if plan.request.is_unplanned:
        fence_if_possible(context, plan)
    return gone


def _look_again(context: MoveContext, plan: MovePlan, gone: MoveProgress) -> MoveProgress:
    """Record which clients follow a later move: an unplanned one may be decided during go."""
    try:
        now = InForce.read(context, plan)
    except UnavailableError as error:
        log.warning("later moves of clients of move %s are unknown: %s", plan.move_id, error)
        return gone
    if not now.later:
        return gone
    gone = MoveStore(context).progress(plan.move_id).noting(superseded=now.later)
    record(context, ControlChange(progress=(gone,)))
    if now.later.keys() >= {*plan.subjects}:
        require_in_force(context, plan, gone)
    log.warning("move %s: superseded for %s", plan.move_id, some(sorted(now.later)))
    return gone


def _decide(context: MoveContext, plan: MovePlan, progress: MoveProgress) -> MoveProgress:
    move_id = plan.move_id
    with Registers(context) as registers:

        def prepare() -> tuple[float, int | None]:
            known = registers.progress(move_id)
            if known.step in HELD and known.attempt == progress.attempt:
                sent = context.monotonic()
                # A client whose hold lapses first reads the source to its end, where it finds this
                # renewal.
                return sent, renew(registers, plan, context.now_ms())
            return float("-inf"), None

        renewed = registers.run(f"go of move {move_id}", prepare)
        # Opening has updated the source, if it was unavailable when clients were redirected.
        progress = registers.progress(move_id)
        if progress.is_decided:
            require_in_force(context, plan, progress)
            return progress
        if plan.request.is_unplanned:
            lift_target_if_possible(context, plan)
            return registers.run(
                f"go of move {move_id}", lambda: _go_unplanned(registers, context, plan)
            )
        seen = patient_look(context, plan, progress)
        require(seen.status.blocking + seen.status.unapplied, plan, "clients may not go")
        sent, stamp_ms = renewed
        going = _going(context, seen, stamp_ms)
        lift_target(context, plan)
        gone = registers.run(
            f"go of move {move_id}", lambda: _go_planned(registers, context, plan, going, sent)
        )
    log.info("move %s: clients go to %s", move_id, plan.request.target)
    return gone


def _go_unplanned(registers: Registers, context: MoveContext, plan: MovePlan) -> MoveProgress:
    """Decide on the target alone. The hold may lapse: its clients do not return to the source."""
    known = registers.progress(plan.move_id)
    if known.is_decided:
        return known
    registers.require("target")
    if known.step not in {"applied", "going"}:
        raise GateClosedError(f"move {plan.move_id} is {known.step}: apply first")
    attempt = Attempt(plan, known.attempt)
    for subject, route in _not_held(registers.tables("target"), attempt).items():
        # Records of this move would have the lower rank, so clients would ignore them.
        raise ConflictError(
            f"move {plan.move_id} no longer holds {subject}, "
            f"{f'move {route.move_id} does' if route else 'no move does'}: continue with that one "
            f"('srm failover status'), or release this one and hold again"
        )
    renew_pause(context, plan)
    now_ms = context.now_ms()
    stamp = context.target.compacted_topic(internal_topics.ROUTING).write({CLOCK_KEY: b"{}"})
    gone = known.at("gone", now_ms)
    registers.write("target", ControlChange(attempt.go(now_ms, stamp or now_ms), (gone,)))
    log.info("move %s: clients go to %s", plan.move_id, plan.request.target)
    return gone


def _not_held(tables: ControlTables, attempt: Attempt) -> dict[str, Route | None]:
    """Return the subjects that an attempt does not hold on a cluster, with the route in force."""
    routes = {subject: tables.routes.get(subject) for subject in attempt.plan.subjects}
    return {one: route for one, route in routes.items() if not attempt.is_held_by(route)}


def _go_planned(
    registers: Registers, context: MoveContext, plan: MovePlan, going: MoveProgress, renewed: float
) -> MoveProgress:
    """Write intent and decision of the attempt that was looked at, or return another's decision."""
    attempt, now_ms = Attempt(plan, going.attempt), context.now_ms()
    known = registers.progress(plan.move_id)
    if known.is_decided:
        return known
    for side in SIDES:
        registers.require(side)
        _require_held(registers.tables(side), attempt, getattr(plan.request, side))
    # After this a release that reaches only the source is refused.
    registers.write("source", ControlChange(progress=(going,)))
    gone = going.at("gone", now_ms)
    change = ControlChange(attempt.go(now_ms), (gone,))

    def require_lease() -> None:
        """Refuse to commit if a pause of this process could outlast the lease.

        The transaction is already open: brokers abort it after its timeout.
        """
        left = renewed + LEASE_MS / 1000 - context.monotonic()
        if left <= CONTROL_TRANSACTION_S + CONTROL_ABORT_S:
            raise GateClosedError(
                f"move {plan.move_id}: only {max(0.0, left):.0f} s of the hold's "
                f"{LEASE_MS / 1000:.0f} s are left after the check, so clients could resume "
                f"before the decision: call go again"
            )

    registers.write("target", change, before_commit=require_lease)
    registers.write_if_there("source", change)
    return gone


def _require_held(tables: ControlTables, attempt: Attempt, alias: str) -> None:
    lost, known = list(_not_held(tables, attempt)), tables.progress.get(attempt.plan.move_id)
    if lost or known is None or known.step not in HELD:
        which = ", ".join(lost[:3]) or "the move"
        raise GateClosedError(
            f"move {attempt.plan.move_id}: the hold of {which} on {alias} is over: hold again"
        )


def release(context: MoveContext, move_id: str, why: str = "") -> MoveProgress:
    """End the hold and let clients continue on the source: the abort before go, safe to repeat.

    One cluster is enough; the other is written when it is back. Offsets already applied on the
    target stay. The ledger marks them as srm's own, so the next move or group offset sync replaces
    them. The flow that an unplanned move has paused resumes.

    Raises:
        ConflictError: clients are already redirected to the target, or the target is unavailable
            and may have decided so.
        UnavailableError: it is released, but a redirector has not confirmed that, or a fence is
            left.
    """
    plan, progress = MoveStore(context).load(move_id)
    # Clients that return must be able to write.
    standing = () if progress.is_decided else release_fence(context, plan, is_over=False)
    why = why or _last_wait(context, move_id)
    try:
        with Registers(context) as registers:
            released = registers.run(
                f"release of move {move_id}",
                lambda: _release(registers, plan, context.now_ms(), why),
            )
    except ConflictError:
        fence_if_possible(context, plan)
        raise
    # A concurrent wait has seen the hold until now and may have set the fence again. A later
    # attempt may have done so too, and needs it.
    standing = standing or release_fence(context, plan, is_over=True)
    if plan.request.is_unplanned:
        resume_flow(context, plan)
    if missing := (*standing, *call_redirectors(context, plan)):
        raise UnavailableError(
            f"move {move_id} is released, but {'; '.join(missing)}: repeat 'srm failover release "
            f"{move_id}', or redirect its clients to {plan.request.source} manually"
        )
    return released


def _last_wait(context: MoveContext, move_id: str) -> str:
    """Return what a move was waiting for at its last look; a failure is only logged."""
    try:
        note = MoveStore(context).note(move_id)
    except SrmError as error:
        log.warning("what move %s waited for is not known: %s", move_id, error)
        return ""
    return f"released while it waited: {'; '.join(note.waits)}" if note and note.waits else ""


def _release(registers: Registers, plan: MovePlan, now_ms: int, why: str) -> MoveProgress:
    request, progress = plan.request, registers.progress(plan.move_id)
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
    routes = Attempt(plan, progress.attempt).release(now_ms)
    first, *rest = [side for side in SIDES if registers.there(side)]
    registers.write(first, ControlChange(routes, (released,)))
    for side in rest:
        registers.write_if_there(side, ControlChange(routes, (released,)))
    log.info("move %s: released, clients continue on %s", plan.move_id, request.source)
    return released


def _going(context: MoveContext, seen: Look, renewed_stamp_ms: int | None) -> MoveProgress:
    groups = seen.facts.groups
    return seen.progress.at(
        "going",
        context.now_ms(),
        log_ends_at_go=by_name(seen.clusters.original_ends()),
        rpo_records=seen.status.rpo_records,
        missing=seen.status.missing,
        renewed_stamp_ms=renewed_stamp_ms,
        commits_at_go={group.group: commits_of(seen.clusters, group.group) for group in groups},
        intended={
            group.group: {str(p.target): p.resume for p in group.positions if p.resume is not None}
            for group in groups
        },
    )
