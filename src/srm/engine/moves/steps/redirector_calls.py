"""Calls of a move's redirectors other than routing records, after the commit of a step.

Calls are made at least once. The move's progress holds the confirmations, so a repeated step
repeats only unconfirmed calls. The source may be unavailable.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import Final

from srm.domain.moves.records.plan import MovePlan
from srm.domain.moves.routing.redirects import (
    Call,
    CallState,
    CallStep,
    ClusterAddress,
    RedirectKind,
    RedirectOrder,
    call_key,
    missing_confirmations,
    order_number,
    step_in_force,
    to_call,
)
from srm.domain.moves.routing.routes import LEASE_MS
from srm.engine.moves.control.move_records import ControlChange, MoveContext, MoveStore
from srm.engine.moves.control.registers import SIDES, Registers
from srm.engine.moves.control.routes import InForce, between_same, bring_about
from srm.engine.ports import Caller, CallResult

log = logging.getLogger(__name__)

_RENEW_S: Final = LEASE_MS / 3000
_GRACE_S: Final = 10.0
"""Extra time for a call that exceeds its own limit."""

_ASKED: Final = CallResult(done=True, said="operators are prompted")


def call_redirectors(
    context: MoveContext,
    plan: MovePlan,
    *,
    again_after_ms: int = 0,
    meanwhile: Callable[[], None] = lambda: None,
) -> tuple[str, ...]:
    """Call the redirectors in order with the step in force, and store their confirmations.

    A hold stops at the first failure; for other steps all are called. An unplanned move sends only
    its go. Returns a message for each redirector that has not confirmed.

    ``again_after_ms``: skip a redirector that has failed more recently than that.
    ``meanwhile``: called periodically during a long call, to renew the hold.
    """
    if len(plan.redirect) == 1:
        return ()
    tried: set[str] = set()
    while True:
        progress = MoveStore(context).progress(plan.move_id)
        step, attempt = step_in_force(progress.step), progress.attempt
        if step is None or (plan.request.is_unplanned and step != "go"):
            return ()  # an unplanned move waits for no client, so no hold was sent
        missing = to_call(plan.redirect, progress.calls, attempt, step)
        since = context.now_ms() - again_after_ms
        todo = [
            kind
            for kind in missing
            if call_key(attempt, step, kind) not in tried
            and not (
                (last := progress.calls.get(call_key(attempt, step, kind)))
                and last.state == "failed"
                and last.time_ms > since
            )
        ]
        if not todo or (step == "hold" and todo[0] != missing[0]):
            return tuple(missing_confirmations(plan.redirect, progress.calls, attempt, step))
        key = call_key(attempt, step, todo[0])
        tried.add(key)
        known = progress.calls.get(key)
        called = known is not None and known.state == "calling"  # by a process that was killed
        _call_while_in_force(context, plan, todo[0], meanwhile, called=called)


def _call_while_in_force(
    context: MoveContext,
    plan: MovePlan,
    kind: RedirectKind,
    meanwhile: Callable[[], None],
    *,
    called: bool,
) -> None:
    """Call a redirector with the step in force; a later move's call is repeated after a late one.

    It is repeated once: what that move calls after the state was read comes later anyway.
    """

    def make(now: InForce) -> None:
        nonlocal called
        if now.step is not None and not now.later:
            called = True
            _call(context, plan, (now.attempt, now.step), kind, meanwhile)
        elif called:
            for move_id in now.moves:
                _call_for_later(context, move_id, kind)
            called = False

    now = bring_about(context, plan, make)
    if now.step is not None and now.later:
        said = f"superseded by move {', '.join(now.moves)}"
        _keep(context, plan, (now.attempt, now.step), kind, "superseded", said)


def _call_for_later(context: MoveContext, move_id: str, kind: RedirectKind) -> None:
    """Repeat a call of a later move, confirmed or not: this move's call may have come after it.

    A call that is not noted yet comes later anyway.
    """
    plan, progress = MoveStore(context).load(move_id)
    between, step = between_same(context, plan), step_in_force(progress.step)
    if step is None or between is None or kind not in plan.redirect:
        log.warning("redirector %s was called late: check that it follows move %s", kind, move_id)
    elif call_key(progress.attempt, step, kind) in progress.calls:
        _call_while_in_force(between, plan, kind, lambda: None, called=True)


def order_of(context: MoveContext, plan: MovePlan, attempt: int, step: CallStep) -> RedirectOrder:
    """Return the order of a step for a redirector."""
    request, config = plan.request, context.forward.config
    names = config.names
    places = config.redirect.addresses
    return RedirectOrder(
        key=f"{plan.move_id}/{attempt}/{step}",
        order=order_number(attempt, step),
        step=step,
        move_id=plan.move_id,
        attempt=attempt,
        operation=request.operation,
        mode=request.mode,
        source=ClusterAddress(request.source, places.get(request.source, "")),
        target=ClusterAddress(request.target, places.get(request.target, "")),
        topics=plan.topics,
        groups=plan.group_names,
        replicas={topic: names.remote(topic) for topic in plan.topics},
        members={group.group: group.members for group in plan.groups},
    )


def _call(
    context: MoveContext,
    plan: MovePlan,
    asked: tuple[int, CallStep],
    kind: RedirectKind,
    meanwhile: Callable[[], None],
) -> None:
    attempt, step = asked
    caller = context.forward.callers.get(kind)
    if kind == "manual":
        answer = _ASKED
    elif caller is None:
        answer = CallResult(done=False, said=f"it is not configured here for {plan.request.flow}")
    else:
        if not _keep(context, plan, asked, kind, "calling", "no answer yet"):
            return
        answer = _await(caller, order_of(context, plan, attempt, step), meanwhile)
    level = logging.INFO if answer.done else logging.WARNING
    log.log(level, "move %s: %s, redirector %s: %s", plan.move_id, step, kind, answer.said)
    _keep(context, plan, asked, kind, "done" if answer.done else "failed", answer.said)


def _keep(
    context: MoveContext,
    plan: MovePlan,
    asked: tuple[int, CallStep],
    kind: RedirectKind,
    state: CallState,
    said: str,
) -> bool:
    """Write the state of a call; return False if its step is not in force now."""
    call, (attempt, step) = Call(state, context.now_ms(), said), asked
    is_in_force = True
    with Registers(context) as registers:

        def keep() -> None:
            nonlocal is_in_force
            known = registers.progress(plan.move_id)
            is_in_force = asked == (known.attempt, step_in_force(known.step))
            if not is_in_force:
                return  # the step now in force is called next
            ours = {k: one for k, one in known.calls.items() if k.startswith(f"{attempt}/")}
            calls = {**ours, call_key(attempt, step, kind): call}
            for side in SIDES if calls != known.calls else ():
                registers.write_if_there(side, ControlChange(progress=(known.noting(calls=calls),)))

        registers.run(f"answer of redirector {kind} to move {plan.move_id}", keep)
    return is_in_force


def _await(caller: Caller, order: RedirectOrder, meanwhile: Callable[[], None]) -> CallResult:
    cancelled, answers = threading.Event(), list[CallResult]()
    within = copy_context()  # the span of the step, for the redirector
    thread = threading.Thread(
        target=lambda: answers.append(within.run(caller.call, order, cancelled)),
        name=f"srm-{order.key}",
        daemon=True,
    )
    deadline = time.monotonic() + caller.limit_s + _GRACE_S
    thread.start()
    try:
        while (left := deadline - time.monotonic()) > 0:
            thread.join(min(left, _RENEW_S))
            if not thread.is_alive():
                break
            meanwhile()
    finally:
        cancelled.set()
        if not answers:
            thread.join(_GRACE_S)
    return answers[0] if answers else CallResult(done=False, said="it did not end in time")
