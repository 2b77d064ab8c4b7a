"""Steps of a move between its hold and its go, a read-only status, and the run of all steps.

Each takes a move id, reads the clusters again and can be repeated after a crash at any point.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TypeVar

from srm import patience
from srm.domain.groups.group_sync import SyncDecision
from srm.domain.moves.gate import MoveStatus, SyncStatus, decide_without_look, is_member
from srm.domain.moves.plan import MovePlan, offsets_to_write
from srm.domain.moves.progress import HELD, RUN_STEPS, MoveProgress, RunStep, run_again
from srm.domain.moves.report import MoveReport
from srm.domain.moves.routing import LEASE_MS, group_subject
from srm.domain.names.topics import TopicPartition
from srm.domain.text.amount import reasons_text
from srm.domain.text.documents import values_of
from srm.engine.cluster_ports import GroupDescription
from srm.engine.control.originals import create_originals
from srm.engine.groups.group_sync import apply_exact
from srm.engine.moves.attempt import InForce, bring_about
from srm.engine.moves.context import MoveContext
from srm.engine.moves.effects import keep_fence, topics_without_fence
from srm.engine.moves.facts import Look, MoveFacts
from srm.engine.moves.gate import look, patient_look, require
from srm.engine.moves.holding import go, hold, leave_out, release, renew, renew_now, renewals
from srm.engine.moves.planning import left_alone, plan_at_go, way_without_source, with_action
from srm.engine.moves.reading import read_facts
from srm.engine.moves.registers import Registers, transact
from srm.engine.moves.store import MoveStore, write_note
from srm.engine.moves.surroundings import absent_originals
from srm.engine.moves.tables import ControlChange, accepted_key
from srm.engine.moves.verification import VerifyStatus, report, verify
from srm.errors import (
    AuthorizationError,
    ConflictError,
    GateClosedError,
    SrmError,
    UnavailableError,
)
from srm.threads import fulfil, start_thread

_GRACE_MS = 5_000
"""Time to commit for members that do not acknowledge the hold."""
log = logging.getLogger(__name__)


def remove_static_members(context: MoveContext, plan: MovePlan, look: Look) -> None:
    """Remove static members from held groups, each once, after they had time to commit."""
    removed = set(look.seen.removed)
    waiting: dict[str, list[str]] = {}
    for group in plan.group_names:
        described = look.facts.source.group(group)
        instances = [one for one in described.instance_ids if f"{group}/{one}" not in removed]
        if instances and _had_time(look, described):
            waiting[group] = instances
    if not waiting:
        return

    done: set[str] = set()

    def make(now: InForce) -> None:
        held = {group for group in waiting if now.leads(group_subject(group))}
        for group in sorted(held - done):
            instances = waiting[group]
            try:
                context.source.remove_static_members(group, instances)
            except AuthorizationError as error:
                log.warning("static members of group %s have to time out: %s", group, error)
            else:
                log.info("group %s: static members %s removed", group, ", ".join(instances))
        for group in sorted(done - held):
            log.warning("group %s was no longer held: its static members join again", group)
        done.update(held)

    bring_about(context, plan, make)
    removed |= {f"{group}/{one}" for group in done for one in waiting[group]}
    if removed != look.seen.removed:
        context.observations[plan.move_id] = replace(look.seen, removed=frozenset(removed))


def _had_time(look: Look, group: GroupDescription) -> bool:
    """Return True if all members acknowledged the hold (others may have left), or had the grace."""
    held = (group_subject(group.name), look.progress.attempt, "held")
    acks = [one.ack for one in look.facts.routing.on_source]
    ready = [ack for ack in acks if (ack.subject, ack.generation, ack.state) == held]
    there = sum(any(is_member(ack, *one) for one in group.by_id) for ack in ready)
    since = look.held_ms
    return there >= len(group.members) or (since is not None and look.now_ms - since >= _GRACE_MS)


def wait_status(context: MoveContext, move_id: str) -> SyncStatus:
    """Check once if the move is synchronised, and renew the hold when due.

    Repeat until ``ready``, when :func:`apply` may be called, or ``timed_out``.
    """
    plan, progress = MoveStore.read(context).load(move_id)
    if progress.step == "released":
        raise ConflictError(
            f"move {move_id} was released, clients stay on {plan.request.source}: "
            f"{context.hold_again(move_id)}, or plan another one"
        )
    if (known := decide_without_look(plan, progress, context.now_ms())) is not None:
        return known
    with renewals(context, plan):
        seen = look(context, plan, progress)
    if seen.lost and not seen.end:
        leave_out(context, plan, seen)
        plan, progress = MoveStore.read(context).load(move_id)
        with renewals(context, plan):
            seen = look(context, plan, progress)
    if progress.step in HELD and not seen.end:
        write_note(context, seen.note(context.now_ms(), context.process))
        remove_static_members(context, plan, seen)
        # All clients that follow the hold have finished writing.
        if not seen.unheld and topics_without_fence(context, plan):
            keep_fence(context, plan)
        # A third of the lease has passed on any cluster.
        routes = [t[one] for t in seen.facts.routing.tables for one in plan.subjects if one in t]
        ages = [context.now_ms() - each.time_ms for each in routes if each.state == "hold"]
        if max(ages, default=0) >= LEASE_MS / 3:
            renew_now(context, plan)
    return seen.status


def status(context: MoveContext, move_id: str) -> MoveStatus:
    """Return the status of a move; the hold is not renewed."""
    store, now_ms = MoveStore.read(context), context.now_ms()
    plan, progress = store.view(move_id)
    if (known := decide_without_look(plan, progress, now_ms)) is None:
        store.require_open(move_id)
        known = look(context, plan, progress).status
    answer = values_of(known, *(one.name for one in fields(known)))
    return MoveStatus(**answer, carrier=store.carrier(move_id, now_ms))


def apply(context: MoveContext, move_id: str) -> SyncStatus:
    """Write the translated offsets on the target, read them back, and return the gate's answer.

    A decided move is not changed. A GateClosedError means that nothing was written.
    """
    plan, progress = MoveStore.read(context).load(move_id)
    if plan.request.is_unplanned and not progress.is_decided:
        progress = _apply_unplanned(context, plan, progress)
    if (known := decide_without_look(plan, progress, context.now_ms())) is not None:
        return known
    with renewals(context, plan):
        seen = patient_look(context, plan, progress)
    require(seen.status.blocking, plan, "offsets may not be applied")
    groups, times = seen.facts.plans, {"ready": context.now_ms(), **progress.times_ms}
    # The most of all looks: applying hides them.
    re_read = Counter(progress.re_read) | Counter({one.group: one.re_read for one in groups})
    skipped = Counter(progress.skipped) | Counter({one.group: one.total_skipped for one in groups})
    store, is_first = MoveStore.read(context), "ready" not in progress.times_ms
    before = replace(plan, groups=()) if is_first else store.plan_at_go(plan)
    kept = plan_at_go(context, plan, before, seen.facts)
    noted = seen.progress.noting(times_ms=times, re_read=re_read, skipped=skipped)
    with renewals(context, plan):
        registers, what = Registers(context), f"apply of move {move_id}"
        registers.run(what, lambda: _keep(registers, plan, noted, context, kept))
        decisions = apply_positions(context, plan, noted.attempt, seen.facts)
        refused = [f"group {one.group}, {_refusal(one)}" for one in decisions if not one.in_place]
        require(tuple(refused), plan, "offsets could not be applied")
        log.info("move %s: %d offsets of %d groups applied", move_id, len(decisions), len(groups))
        after = look(context, plan, noted)
        if after.status.unapplied:
            differing = reasons_text(after.status.unapplied)
            raise ConflictError(f"offsets of move {move_id} did not stay as written: {differing}")
        applied = noted.at("applied", context.now_ms())
        registers.run(what, lambda: _keep(registers, plan, applied, context))
    return after.status


def _refusal(one: SyncDecision) -> str:
    return f"{one.partition}: {one.action}{one.reason and ', '}{one.reason}"


def _apply_unplanned(context: MoveContext, plan: MovePlan, progress: MoveProgress) -> MoveProgress:
    """Set each group to its last known position; record those that cannot be set and continue."""
    if progress.step not in HELD:
        raise GateClosedError(
            f"move {plan.move_id} is {progress.step}: {context.hold_again(plan.move_id)}"
        )
    facts = read_facts(context, plan.request, plan.topics, plan.group_names)
    if create_originals(context.forward, absent_originals(context, facts)):  # deleted since hold
        facts = read_facts(context, plan.request, plan.topics, plan.group_names)
    left = left_alone(facts)
    decisions = apply_positions(context, plan, progress.attempt, facts, left)
    left |= {one.group: _refusal(one) for one in decisions if not one.in_place}
    set_now = [group for group in facts.plans if group.group not in left]
    now = {group.group: offsets_to_write(group.positions) for group in set_now}
    intended = {**progress.intended, **now}  # an earlier apply may have set active groups
    unchanged = {**progress.left_alone, **left}
    log.info("move %s: %d groups are set, %d are not", plan.move_id, len(set_now), len(left))
    applied = progress.at(
        "applied",
        context.now_ms(),
        intended=intended,
        skipped=Counter(progress.skipped) | Counter({g.group: g.total_skipped for g in set_now}),
        left_alone={group: why for group, why in unchanged.items() if group not in intended},
    )
    what = f"apply of move {plan.move_id}"
    kept = plan_at_go(context, plan, MoveStore.read(context).plan_at_go(plan), facts)
    transact(context, what, lambda registers: _keep(registers, plan, applied, context, kept))
    return applied


def _keep(
    registers: Registers,
    plan: MovePlan,
    progress: MoveProgress,
    context: MoveContext,
    kept: MovePlan | None = None,
) -> None:
    """Write progress of the attempt that was looked at, and what it accepts; renew its hold."""
    known = registers.store.progress(plan.move_id)
    if known.attempt != progress.attempt or known.step not in HELD:
        raise ConflictError(
            f"move {plan.move_id} is now {known.step} and its hold is over: see "
            f"'{context.command(f'status {plan.move_id}')}'"
        )
    # Keep confirmations of redirectors since the look at the clusters.
    documents = {} if kept is None else {accepted_key(plan.move_id): kept.value()}
    change = ControlChange({}, (replace(progress, calls=known.calls),), documents)
    renew(registers, plan, context.now_ms(), change)


def apply_positions(
    context: MoveContext, plan: MovePlan, attempt: int, facts: MoveFacts, left: Collection[str] = ()
) -> tuple[SyncDecision, ...]:
    """Write the offsets where groups of an attempt continue; return the result for each partition.

    Offsets already in place are included: a killed run may have left its ledger unsettled. If
    another process decides the move concurrently, its offsets count. A group that follows a later
    move is skipped. The ledger marks late writes as srm's own, so the next sync replaces them.
    """
    positions = {one.group: one.positions for one in facts.plans if one.group not in left}
    rows = {
        group: [(p.target, p.resume, p.target_committed) for p in some if p.resume is not None]
        for group, some in positions.items()
    }
    ours = {group: {tp: resume for tp, resume, _ in some} for group, some in rows.items() if some}
    seen = {group: {tp: known for tp, _, known in some} for group, some in rows.items()}
    decisions: dict[tuple[str, TopicPartition], SyncDecision] = {}

    def make(now: InForce) -> None:
        known = MoveStore.read(context).progress(plan.move_id)
        decided = {
            group: {TopicPartition.parse(name): offset for name, offset in offsets.items()}
            for group, offsets in (known.intended.items() if known.is_decided else ())
        }
        wanted = {
            group: decided.get(group, offsets)
            for group, offsets in ours.items()
            if now.attempt == attempt and now.leads(group_subject(group))
        }
        operation, share = f"move {plan.move_id}", facts.share_groups
        for one in apply_exact(
            context.forward, wanted, seen=seen, operation=operation, share=share
        ):
            decisions[one.group, one.partition] = one
            if one.applied:
                seen[one.group][one.partition] = one.offset

    bring_about(context, plan, make)
    return tuple(decisions.values())


Around = Callable[[RunStep], AbstractContextManager[object]]
"""Returns a context manager to run a step in, for example a span of a trace."""

_POLL_S = 0.5
_S = TypeVar("_S", SyncStatus, VerifyStatus)


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Progress for display: the running step, its latest status, and what delays the next one."""

    step: RunStep
    status: SyncStatus | VerifyStatus | None = None
    trouble: str = ""


def carry_out(
    context: MoveContext,
    move_id: str,
    show: Callable[[RunEvent], None] = lambda _event: None,
    poll_seconds: float = _POLL_S,
    around: Around = nullcontext,
) -> MoveReport:
    """Run a planned move from hold to report; an interrupted move continues.

    An error, the time limit (GateClosedError) or Ctrl-C before go releases the hold. Groups that do
    not resume in time are named in the report alone. Each step runs in ``around``.
    """
    plan = MoveStore.read(context).load(move_id)[0]
    run = _Run(context, plan, time.monotonic() + plan.request.wait_seconds, show, poll_seconds)
    with offer_way_out(context, move_id):
        for step in RUN_STEPS:
            try:
                with around(step.name):
                    run.step(step.name)
            except BaseException as error:
                if step.releases:
                    _release_after(context, plan, error)
                raise
    return run.report


@contextmanager
def offer_way_out(context: MoveContext, move_id: str) -> Iterator[None]:
    """Add to an error what moves on without its cause, a cluster that does not answer."""
    try:
        yield
    except UnavailableError as error:
        plan, progress = MoveStore.read(context).load(move_id)
        if not progress.is_decided:
            raise with_action(error, way_without_source(context, plan.request)) from error
        sent = f"clients have been sent to {plan.request.target}"
        again = run_again(plan.request.flow, move_id)
        raise with_action(error, f"{sent}; '{again}' verifies and reports the move") from error


def apply_and_go(context: MoveContext, move_id: str, around: Around = nullcontext) -> MoveProgress:
    """Apply the offsets of a move that is ready and send its clients to the target.

    A record that a slow writer adds now closes the gate again. The call waits for it to reopen for
    at most twice the longest quiet time, plus a few looks; then a GateClosedError, clients stay.
    """
    plan = MoveStore.read(context).load(move_id)[0]
    limit_s = min(2 * plan.request.quiet_s() + 5.0, plan.request.wait_seconds)
    run = _Run(context, plan, time.monotonic() + limit_s)
    sending: tuple[RunStep, ...] = ("apply", "go")
    for step in sending:
        with around(step):
            run.step(step)
    return MoveStore.read(context).progress(move_id)


@dataclass
class _Run:
    context: MoveContext
    plan: MovePlan
    deadline: float
    show: Callable[[RunEvent], None] = lambda _event: None
    poll_seconds: float = _POLL_S
    seen: SyncStatus | VerifyStatus | None = None
    trouble: UnavailableError | None = None
    report: MoveReport = field(init=False)
    _timer: threading.Event = field(default_factory=threading.Event)

    def step(self, name: RunStep) -> None:
        """Run a step; again, which does nothing, if another run of the move has decided it."""
        if name not in {"wait", "verify"}:  # they show each of their looks
            self.show(RunEvent(name, self.seen))
        try:
            self._run(name)
        except ConflictError:
            if not MoveStore.read(self.context).progress(self.plan.move_id).is_decided:
                raise
            self._run(name)

    def _run(self, name: RunStep) -> None:
        match name:
            case "hold":
                hold(self.context, self.plan.move_id)
            case "wait":
                self._wait()
            case "apply":
                self._until_open(self._apply, self._wait)
            case "go":
                self._until_open(lambda: go(self.context, self.plan.move_id), self._apply_again)
            case "verify":
                self._verify()
            case _:
                self.report = report(self.context, self.plan.move_id)

    def _looks(
        self, step: RunStep, look: Callable[[MoveContext, str], _S], deadline: float
    ) -> Iterator[_S]:
        """Yield and show looks; a cluster that is unavailable before the deadline only delays."""
        while True:
            try:
                self.seen = seen = look(self.context, self.plan.move_id)
                self.trouble = None
            except UnavailableError as error:
                if time.monotonic() > deadline:
                    raise
                self.trouble = error
                self.show(RunEvent(step, self.seen, str(error)))
            else:
                yield seen
                self.show(RunEvent(step, seen))
            self._timer.wait(self.poll_seconds)

    def _wait(self) -> None:
        plan = self.plan
        if plan.request.is_unplanned:
            return
        for status in self._looks("wait", self._look_in_time, self.deadline):
            if status.ready:
                return
            if status.timed_out or time.monotonic() > self.deadline:
                raise self._not_in_time(status.blocking)

    def _look_in_time(self, context: MoveContext, move_id: str) -> SyncStatus:
        """Look in a thread: a cluster that hangs may keep it, and not the clients."""
        found = Future[SyncStatus]()
        look = partial(copy_context().run, wait_status, context, move_id)
        start_thread("srm-look", partial(fulfil, found, look))
        wait([found], max(0.0, self.deadline - time.monotonic()))
        if found.done():
            return found.result()
        patience.forget()  # a cluster that hangs must not delay the release as long
        waits = self.seen.blocking if isinstance(self.seen, SyncStatus) else ()
        raise self.trouble or self._not_in_time((*waits, "the last look has not ended"))

    def _not_in_time(self, waits: Collection[str]) -> GateClosedError:
        request = self.plan.request
        return GateClosedError(
            f"move {self.plan.move_id} was not synchronised within {request.wait_seconds:g} s; "
            f"clients stay on {request.source}: {reasons_text(waits)}"
        )

    def _apply(self) -> None:
        self.seen = apply(self.context, self.plan.move_id)

    def _apply_again(self) -> None:
        self._wait()
        self.step("apply")

    def _until_open(self, call: Callable[[], object], wait: Callable[[], None]) -> None:
        """Wait and call again while the gate refuses, until the hold or the time limit ends."""
        while True:
            try:
                call()
            except GateClosedError as closed:
                held = MoveStore.read(self.context).progress(self.plan.move_id).step in HELD
                if not held or time.monotonic() > self.deadline:
                    raise
                log.info("move %s waits again: %s", self.plan.move_id, closed)
            else:
                return
            wait()

    def _verify(self) -> None:
        deadline = time.monotonic() + self.plan.request.resume_seconds
        for seen in self._looks("verify", verify, deadline):
            if seen.done or seen.timed_out:
                return


def _release_after(context: MoveContext, plan: MovePlan, error: BaseException) -> None:
    """Release the move, unless another run has planned it again and carries it out."""
    move_id = plan.move_id
    why = ""  # of an interruption: its last wait says more
    if isinstance(error, Exception):
        why = str(error) if isinstance(error, SrmError) else f"{type(error).__name__}: {error}"
    try:
        store = MoveStore.read(context)
        known, left = store.plan(move_id), store.progress(move_id).left_alone
        if known is None or known.without(left) != plan.without(left):
            log.info("move %s was planned again by another run, which has its hold", move_id)
            return
        release(context, move_id, why)
    except ConflictError as gone:
        log.info("nothing to release: %s", gone)
    except SrmError as failed:
        again = f"repeat '{context.command(f'release {move_id}')}'"
        # The error that brought us here is the one to show.
        log.error("the release of move %s is not complete, %s: %s", move_id, again, failed)  # noqa: TRY400
