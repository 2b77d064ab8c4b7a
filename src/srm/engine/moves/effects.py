"""Effects of a move outside its records: write fences, and calls of redirectors.

No broker fences them. So each is repeated until the state read after it is the one it is for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import MoveProgress
from srm.domain.moves.routing import (
    Call,
    CallState,
    CallStep,
    ClusterAddress,
    RedirectKind,
    RedirectOrder,
    call_key,
    missing_confirmations,
    order_number,
    to_call,
    topic_subject,
)
from srm.domain.names import internal_topics
from srm.domain.text.amount import some, utc
from srm.domain.text.documents import Document, decode_or_none
from srm.engine.cluster_ports import Cluster, tolerate
from srm.engine.control.control_topics import CONTROL_ID, create_control_topics, until_not_fenced
from srm.engine.moves.attempt import InForce, bring_about
from srm.engine.moves.context import SIDES, MoveContext, between_same
from srm.engine.moves.registers import Registers, transact
from srm.engine.moves.store import MoveStore
from srm.engine.moves.tables import ControlChange
from srm.engine.ports import Caller, CallResult
from srm.errors import ConflictError, SrmError
from srm.threads import start_thread

log = logging.getLogger(__name__)

_PREFIX: Final = b"fence:"


@dataclass(frozen=True, slots=True)
class Fence(Document):
    """One fenced topic, in ``__srm-moves`` of its cluster under ``fence:<topic>``.

    The record is written before the deny ACL, so a later run can lift a fence that a crash has
    left. ``attempt``: generation of the attempt that set it; a later one takes it over.
    """

    KIND = "record of a fence"
    topic: str
    move_id: str
    set_ms: int
    lifted_ms: int = 0
    attempt: int = 0

    @property
    def is_set(self) -> bool:
        return not self.lifted_ms

    def key(self) -> bytes:
        return _PREFIX + self.topic.encode()


Wanted = Callable[[Fence], bool]
_JUST_NOW_MS: Final = 600_000
"""A rule that is back within this time after its lifting was set by a late process of srm."""


def set_fence(
    cluster: Cluster,
    topics: Collection[str],
    move_id: str,
    now_ms: int,
    allowed: Callable[[], Collection[str]] | None = None,
    attempt: int = 0,
) -> None:
    """Deny all writes to topics (``allowed`` ones, when that is recorded); safe to repeat."""
    denied, since_ms = cluster.write_denials(topics), now_ms - _JUST_NOW_MS

    def records(known: Mapping[str, Fence]) -> list[Fence]:
        # Denials without a record are ACLs of others, which srm does not lift. A late process has
        # set one whose record is lifted: that of this move, or one lifted just now.
        late = {t for t, f in known.items() if f.move_id == move_id or f.lifted_ms >= since_ms}
        attempts = dict.fromkeys(denied - late, attempt)
        attempts |= {topic: one.attempt for topic, one in known.items() if one.is_set}
        new = {topic for topic in topics if attempts.get(topic, -1) < attempt}
        wanted = new & {*allowed()} if new and allowed is not None else new
        return [Fence(topic, move_id, now_ms, attempt=attempt) for topic in sorted(wanted)]

    _record(cluster, records)
    enforce_fences(cluster, topics)


def enforce_fences(cluster: Cluster, topics: Collection[str]) -> None:
    """Deny writes to those of the topics whose fence is set, by its record after that, too."""

    def fences() -> set[str]:
        return {topic for topic, one in read_fences(cluster).items() if one.is_set} & {*topics}

    for _ in range(5):  # another process may allow them at the same time
        ours = fences()
        missing = sorted(ours - cluster.write_denials(ours)) if ours else []
        if not missing:
            return
        cluster.deny_writes(missing)
        log.info("no writes to %s on %s", ", ".join(missing), cluster.alias)
        if late := {*missing} - fences():
            cluster.allow_writes(sorted(late))


def lift_fence(
    cluster: Cluster, now_ms: int, wanted: Wanted = lambda _fence: True, since_ms: int | None = None
) -> tuple[str, ...]:
    """Allow writes again to topics that srm fenced, or unfenced since ``since_ms``; return them."""
    since_ms = now_ms if since_ms is None else since_ms
    lifted: set[str] = set()
    while True:
        known = [fence for fence in read_fences(cluster).values() if wanted(fence)]
        open_now = [f.topic for f in known if not f.is_set and f.lifted_ms >= since_ms]
        found = cluster.write_denials(open_now) if open_now else frozenset()
        topics = {fence.topic for fence in known if fence.is_set} | found
        if not topics:
            return tuple(sorted(lifted))
        cluster.allow_writes(sorted(topics))
        _record(cluster, partial(_lift_records, topics, wanted, now_ms))
        enforce_fences(cluster, topics)  # those that a later move has set meanwhile
        log.info("writes to %s are allowed on %s again", ", ".join(sorted(topics)), cluster.alias)
        lifted |= topics


def _lift_records(
    topics: Collection[str], wanted: Wanted, now_ms: int, known: Mapping[str, Fence]
) -> list[Fence]:
    fences = [one for one in known.values() if one.topic in topics and one.is_set and wanted(one)]
    return [replace(fence, lifted_ms=now_ms) for fence in fences]


def keep_fence(context: MoveContext, plan: MovePlan, *, sets: bool = True) -> None:
    """Fence the topics whose clients follow this move, and lift its fences of other topics."""
    if sets:  # no earlier move may have needed the topic of the records there
        create_control_topics(context.source, context.reverse.config.internal_replication_factor)
    topics = _there(context, plan)

    def ours(now: InForce | None = None) -> set[str]:
        known = now or InForce.read(context, plan)
        return {topic for topic in topics if known.leads(topic_subject(topic))}

    def make(now: InForce) -> None:
        closed, source, now_ms = ours(now), context.source, context.now_ms()
        if sets:
            set_fence(source, closed, plan.move_id, now_ms, ours, now.attempt)

        def is_over(fence: Fence) -> bool:  # not while its clients are elsewhere all the same
            is_needed = fence.is_set and now.step == "go" and topic_subject(fence.topic) in now.away
            return fence.move_id == plan.move_id and fence.topic not in closed and not is_needed

        lift_fence(source, now_ms, is_over, 0)

    _fence_for_later(context, bring_about(context, plan, make))


def _fence_for_later(context: MoveContext, now: InForce) -> None:
    """Set the fences of later moves again: this one may have lifted theirs."""
    back = replace(context, forward=context.reverse, reverse=context.forward)
    for move_id in now.moves:
        later = MoveStore.read(context).plan(move_id)
        for one in (context, back):  # its target may be a third cluster
            if later is not None and later.request.source == one.source.alias:
                fence_if_possible(one, later)


def require_in_force(
    context: MoveContext, plan: MovePlan, progress: MoveProgress, *, lifts: bool = True
) -> None:
    if progress.is_decided and (later := InForce.read(context, plan).moves):
        if lifts:  # a killed process may have left a late fence
            fence_if_possible(context, plan, sets=False)
        ended = utc(max(progress.times_ms.values()))
        raise ConflictError(
            f"move {plan.move_id} ended at {ended}, superseded by move "
            f"{', '.join(later)}; nothing was moved. Trigger a new run, or plan with another id"
        )


def open_target(context: MoveContext, plan: MovePlan) -> dict[str, bytes]:
    """Allow writes on the target; return its fences' records, lifted: set until decided.

    Clients must not meet a closed one. A process killed in between leaves it open until its move
    runs again: go decides, release closes it. No record is lost: groups read it, or it is residue.
    """
    known, now_ms = read_fences(context.target), context.now_ms()
    lifted = _lift_records(plan.topics, lambda _fence: True, now_ms, known)
    if lifted:
        context.target.allow_writes([fence.topic for fence in lifted])
    return {fence.key().decode(): fence.value() for fence in lifted}


def lift_target(context: MoveContext, plan: MovePlan, attempt: int) -> None:
    """Lift srm's fences of a move's topics on its target, except those of later moves."""
    now_ms = context.now_ms()

    def may_lift(fence: Fence) -> bool:
        return fence.topic in plan.topics and (not fence.is_set or fence.attempt <= attempt)

    lift_fence(context.target, now_ms, may_lift, now_ms - _JUST_NOW_MS)
    _fence_for_later(context, InForce.read(context, plan))


def if_possible(cluster: Cluster, act: Callable[[], object]) -> None:
    """Make a change on a cluster that the move can do without; only log a failure."""
    tolerate(act, f"cluster {cluster.alias} is left as it is", SrmError)


def fence_if_possible(context: MoveContext, plan: MovePlan, *, sets: bool = True) -> None:
    """Keep the fence of a decided move if its source answers, also an abandoned one."""
    if plan.fence != "acl":
        return
    gone = context.condemned
    source = gone if gone and gone.alias == plan.request.source else context.source
    there = replace(context, forward=replace(context.forward, source=source))
    if_possible(source, lambda: keep_fence(there, plan, sets=sets))


def topics_without_fence(context: MoveContext, plan: MovePlan) -> tuple[str, ...]:
    if plan.fence != "acl":
        return ()
    topics = _there(context, plan)
    denied = context.source.write_denials(topics)
    return tuple(
        f"writes to {topic} are not denied on {plan.request.source} yet"
        for topic in topics
        if topic not in denied
    )


def release_fence(context: MoveContext, plan: MovePlan, *, is_over: bool) -> tuple[str, ...]:
    """Lift the fence before a release, then keep what routes require; return a failure's text."""
    source, target = context.source, context.target
    if_possible(target, lambda: enforce_fences(target, plan.topics))  # an undecided go opens it
    if plan.request.is_unplanned or plan.fence != "acl":
        return ()  # an unplanned one fences after its decision
    try:
        if is_over:
            keep_fence(context, plan)
        else:
            lift_fence(source, context.now_ms(), lambda fence: fence.move_id == plan.move_id)
    except SrmError as error:
        unfence = f"'srm failover unfence {source.alias}' allows them"
        return (f"writes may still be denied on {source.alias}, {unfence}: {error}",)
    return ()


def _record(cluster: Cluster, records: Callable[[Mapping[str, Fence]], Sequence[Fence]]) -> None:
    if not records(read_fences(cluster)):
        return

    def attempt() -> None:
        with closing(cluster.control_writer(CONTROL_ID)) as writer:
            changed = {fence.key(): fence.value() for fence in records(read_fences(cluster))}
            writer.write({internal_topics.MOVES: changed})

    until_not_fenced(f"fence on {cluster.alias}", attempt)


def read_fences(cluster: Cluster) -> dict[str, Fence]:
    """Read the fences of a cluster by topic; a damaged record is skipped, and stops no move."""
    rows = cluster.compacted_topic(internal_topics.MOVES).read_stamped()
    found = (
        decode_or_none(row.value, Fence.decode, f"on cluster {cluster.alias}: {key!r}: ")
        for key, row in rows.items()
        if key.startswith(_PREFIX)
    )
    return {fence.topic: fence for fence in found if fence is not None}


def _there(context: MoveContext, plan: MovePlan) -> list[str]:
    existing = context.source.partition_counts()
    return [topic for topic in plan.topics if topic in existing]


_GRACE_S: Final = 10.0
"""Extra time for a call that exceeds its own limit."""


def call_redirectors(
    context: MoveContext,
    plan: MovePlan,
    *,
    again_after_ms: int = 0,
) -> tuple[str, ...]:
    """Call the redirectors in order with the step in force, and store their confirmations.

    A hold stops at the first failure; for other steps all are called. An unplanned move sends no
    hold. Returns a message for each redirector that has not confirmed.
    ``again_after_ms``: skip a redirector that has failed more recently than that.
    """
    if len(plan.redirect) == 1:
        return ()
    tried: set[str] = set()
    while True:
        progress = MoveStore.read(context).progress(plan.move_id)
        step, attempt = progress.order_in_force, progress.attempt
        if step is None or (plan.request.is_unplanned and step == "hold"):
            return ()  # it waits for no client; its release also ends holds that it has taken over
        missing = to_call(plan.redirect, progress.calls, attempt, step)
        since = context.now_ms() - again_after_ms
        todo = [
            kind
            for kind, call in missing.items()
            if call_key(attempt, step, kind) not in tried
            if call is None or call.state != "failed" or call.time_ms <= since
        ]
        if not todo or (step == "hold" and todo[0] != next(iter(missing))):
            return tuple(missing_confirmations(plan.redirect, progress.calls, attempt, step))
        kind, known = todo[0], missing[todo[0]]
        tried.add(call_key(attempt, step, kind))
        called = known is not None and known.state == "calling"  # by a process that was killed
        _Redirector(context, plan, kind).call_while_in_force(called=called)


@dataclass(frozen=True, slots=True)
class _Redirector:
    """One redirector of a move."""

    context: MoveContext
    plan: MovePlan
    kind: RedirectKind

    def call_while_in_force(self, *, called: bool) -> None:
        """Call it with the step in force; a later move's call is repeated after a late one.

        It is repeated once: what that move calls after the state was read comes later anyway.
        """

        def make(now: InForce) -> None:
            nonlocal called
            if now.step is not None and not now.later:
                called = True
                self._call(now.attempt, now.step)
            elif called:
                for move_id in now.moves:
                    self._call_for_later(move_id)
                called = False

        now = bring_about(self.context, self.plan, make)
        if now.step is not None and now.later:
            led = sorted({*self.plan.subjects} - now.later.keys()) if now.step == "go" else ()
            state: CallState = "failed" if led else "superseded"
            said = f"superseded by move {', '.join(now.moves)}"
            if led:
                said += f", but for {some(led)}: send those to {self.plan.request.target} by hand"
            self._keep(now.attempt, now.step, state, said)

    def _call_for_later(self, move_id: str) -> None:
        """Repeat a noted call of a later move: the call of this one may have come after it."""
        plan, progress = MoveStore.read(self.context).view(move_id)
        between, step = between_same(self.context, plan), progress.order_in_force
        if step is None or between is None or self.kind not in plan.redirect:
            log.warning(
                "redirector %s was called late: check that it follows move %s", self.kind, move_id
            )
        elif call_key(progress.attempt, step, self.kind) in progress.calls:
            _Redirector(between, plan, self.kind).call_while_in_force(called=True)

    def _call(self, attempt: int, step: CallStep) -> None:
        plan, kind = self.plan, self.kind
        caller = self.context.forward.callers.get(kind)
        if kind == "manual":
            answer = CallResult(done=True, said="operators are prompted")
        elif caller is None:
            said = f"it is not configured here for {plan.request.flow}"
            answer = CallResult(done=False, said=said)
        else:
            if not self._keep(attempt, step, "calling", "no answer yet"):
                return
            order = order_of(self.context, plan, attempt, step)
            answer = _await(caller, order)
        level = logging.INFO if answer.done else logging.WARNING
        log.log(level, "move %s: %s, redirector %s: %s", plan.move_id, step, kind, answer.said)
        self._keep(attempt, step, "done" if answer.done else "failed", answer.said)

    def _keep(self, attempt: int, step: CallStep, state: CallState, said: str) -> bool:
        """Write the state of a call; return False if its step is not in force now."""
        call = Call(state, self.context.now_ms(), said)

        def keep(registers: Registers) -> bool:
            known = registers.store.progress(self.plan.move_id)
            if (attempt, step) != (known.attempt, known.order_in_force):
                return False  # the step now in force is called next
            ours = {k: one for k, one in known.calls.items() if k.startswith(f"{attempt}/")}
            calls = {**ours, call_key(attempt, step, self.kind): call}
            for side in SIDES if calls != known.calls else ():
                change = ControlChange(progress=(known.noting(calls=calls),))
                registers.write_if_there(side, change)
            return True

        what = f"answer of redirector {self.kind} to move {self.plan.move_id}"
        return transact(self.context, what, keep)


def order_of(context: MoveContext, plan: MovePlan, attempt: int, step: CallStep) -> RedirectOrder:
    request, names = plan.request, context.forward.config.names
    places = context.forward.config.redirect.addresses
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


def _await(caller: Caller, order: RedirectOrder) -> CallResult:
    cancelled, answers = threading.Event(), list[CallResult]()
    within = copy_context()  # the span of the step, for the redirector
    thread = start_thread(
        f"srm-{order.key}", lambda: answers.append(within.run(caller.call, order, cancelled))
    )
    try:
        thread.join(caller.limit_s + _GRACE_S)
    finally:
        cancelled.set()
        if not answers:
            thread.join(_GRACE_S)
    return answers[0] if answers else CallResult(done=False, said="it did not end in time")
