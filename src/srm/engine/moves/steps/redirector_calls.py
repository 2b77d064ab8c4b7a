"""Call the redirectors of a move that are not routing records, when a step is durable.

A call is made at least once: what it has confirmed is in the move's progress, so that whoever
repeats a step repeats only what is not confirmed. Nothing is assumed of the source: it may be away.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import Final

from srm.domain.moves.records.plan import MovePlan
from srm.domain.moves.records.progress import MoveProgress
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
from srm.engine.moves.control.control import ControlChange
from srm.engine.moves.control.move_records import MoveContext, MoveStore
from srm.engine.moves.control.registers import SIDES, Registers
from srm.engine.moves.control.routes import InForce, between_same, bring_about
from srm.engine.moves.steps.redirect import LEASE_MS
from srm.engine.ports import Caller, CallResult

log = logging.getLogger(__name__)

_RENEW_S: Final = LEASE_MS / 3000
_GRACE_S: Final = 10.0
"""For a call that does not keep to its own limit."""

_ASKED: Final = CallResult(done=True, said="people are asked")


def call_redirectors(
    context: MoveContext,
    plan: MovePlan,
    *,
    again_after_ms: int = 0,
    meanwhile: Callable[[], None] = lambda: None,
) -> tuple[str, ...]:
    """Tell the redirectors what is in force for the clients, in order, and keep what they confirm.

    A hold stops at the first one that fails; else all are called. An unplanned move
    tells its go alone.

    Args:
        context: the clusters.
        plan: of the move.
        again_after_ms: leave one alone that has failed more recently than that.
        meanwhile: called from time to time while one takes long: a hold has to be renewed.

    Returns:
        Of each that has not confirmed, how that is.
    """
    if len(plan.redirect) == 1:
        return ()
    tried: set[str] = set()
    while True:
        progress = MoveStore(context).progress(plan.move_id)
        step, attempt = step_in_force(progress.step), progress.attempt
        if step is None or (plan.request.is_unplanned and step != "go"):
            return ()  # nobody is waited for, so nobody was told to hold
        missing = to_call(plan.redirect, progress.calls, attempt, step)
        todo = [
            kind
            for kind in missing
            if call_key(attempt, step, kind) not in tried
            and not _is_recent(progress, step, kind, context.now_ms() - again_after_ms)
        ]
        if not todo or (step == "hold" and todo[0] != missing[0]):
            return tuple(missing_confirmations(plan.redirect, progress.calls, attempt, step))
        tried.add(call_key(attempt, step, todo[0]))
        _call_while_in_force(context, plan, todo[0], meanwhile)


def _call_while_in_force(
    context: MoveContext, plan: MovePlan, kind: RedirectKind, meanwhile: Callable[[], None]
) -> None:
    """Call a redirector with what is in force; after a later move, have that one call it again."""
    called = False

    def make(now: InForce) -> None:
        nonlocal called
        if now.step is not None and not now.later:
            called = True
            _call(context, plan, (now.attempt, now.step), kind, meanwhile)
        for move_id in now.moves if called else ():
            _call_for_later(context, move_id, kind)

    now = bring_about(context, plan, make)
    if now.step is not None and now.later:
        said = f"superseded by move {', '.join(now.moves)}"
        _keep(context, plan, (now.attempt, now.step), kind, "superseded", said)


def _call_for_later(context: MoveContext, move_id: str, kind: RedirectKind) -> None:
    """Make a call of a later move again: that of this one may have come after it."""
    plan, progress = MoveStore(context).load(move_id)
    between, step = between_same(context, plan), step_in_force(progress.step)
    if step is None or between is None:
        log.warning("redirector %s was called late: see what move %s needs of it", kind, move_id)
        return
    late = "a call of an earlier move came after this one"
    _keep(between, plan, (progress.attempt, step), kind, "failed", late)
    call_redirectors(between, plan)


def order_of(context: MoveContext, plan: MovePlan, attempt: int, step: CallStep) -> RedirectOrder:
    """Say what a redirector is told of a step."""
    request, config = plan.request, context.forward.config
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
        replicas={
            topic: config.policy.format_remote_topic(request.source, topic) for topic in plan.topics
        },
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
        answer = CallResult(done=False, said=f"it is not set up here for {plan.request.flow}")
    else:
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
) -> None:
    call, (attempt, step) = Call(state, context.now_ms(), said), asked
    with Registers(context) as registers:

        def keep() -> None:
            known = registers.progress(plan.move_id)
            if asked != (known.attempt, step_in_force(known.step)):
                return  # what is in force now is called after this
            ours = {k: one for k, one in known.calls.items() if k.startswith(f"{attempt}/")}
            calls = {**ours, call_key(attempt, step, kind): call}
            for side in SIDES if calls != known.calls else ():
                registers.write_if_there(side, ControlChange(progress=(known.noting(calls=calls),)))

        registers.run(f"answer of redirector {kind} to move {plan.move_id}", keep)


def _await(caller: Caller, order: RedirectOrder, meanwhile: Callable[[], None]) -> CallResult:
    cancelled, answers = threading.Event(), list[CallResult]()
    within = copy_context()  # the span of the step, for whoever is called
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


def _is_recent(progress: MoveProgress, step: CallStep, kind: RedirectKind, since_ms: int) -> bool:
    known = progress.calls.get(call_key(progress.attempt, step, kind))
    return known is not None and known.time_ms > since_ms
