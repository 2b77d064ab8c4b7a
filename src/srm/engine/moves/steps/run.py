"""Carry out a whole planned move, for callers that do not run its steps one by one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from srm.domain.moves.gate.gate import SyncStatus
from srm.domain.moves.records.plan import MovePlan
from srm.domain.moves.records.progress import HELD, RUN_STEPS, MoveProgress, RunStep
from srm.domain.moves.report.report import MoveReport
from srm.domain.text.amount import few
from srm.engine.moves.control.move_records import MoveContext, MoveStore
from srm.engine.moves.steps.decision import go, release
from srm.engine.moves.steps.holding import hold
from srm.engine.moves.steps.steps import apply, wait_status
from srm.engine.moves.steps.verify import VerifyStatus, report, verify
from srm.errors import ConflictError, GateClosedError, SrmError, UnavailableError

log = logging.getLogger(__name__)

Around = Callable[[RunStep], AbstractContextManager[object]]
"""Returns a context manager to run a step in, for example a span of a trace."""

_POLL_S = 0.5
_LOOKS_S = 5.0


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Progress for display: the running step and its latest status."""

    step: RunStep
    sync: SyncStatus | None = None
    verify: VerifyStatus | None = None


def carry_out(
    context: MoveContext,
    move_id: str,
    show: Callable[[RunEvent], None] = lambda _event: None,
    poll_seconds: float = _POLL_S,
    around: Around = nullcontext,
) -> MoveReport:
    """Run a planned move from hold to report; an interrupted move continues.

    An error, the time limit or Ctrl-C before clients are redirected releases the hold. Groups that
    do not resume in time are named in the report; they are not an error. Each step runs in the
    caller's context manager ``around``.

    Raises:
        ConflictError: something blocks it.
        GateClosedError: it was not synchronised within its time limit; clients were released.
    """
    plan = MoveStore(context).plan(move_id)
    deadline = time.monotonic() + plan.request.wait_seconds
    run = _Run(context, plan, deadline, show, poll_seconds)
    for step in RUN_STEPS:
        try:
            with around(step.name):
                run.step(step.name)
        except BaseException as error:
            if step.releases:
                _release(context, move_id, _why(error))
            raise
    return run.report


def apply_and_go(context: MoveContext, move_id: str, around: Around = nullcontext) -> MoveProgress:
    """Apply the offsets of a move that is ready and send its clients to the target.

    A record that a slow writer adds now closes the gate again. The call waits for it to reopen for
    at most twice the longest quiet time, plus a few looks.

    Raises:
        GateClosedError: the gate does not open; clients stay where they are.
        ConflictError: the offsets read back differ from those written.
    """
    plan = MoveStore(context).plan(move_id)
    quiet = max(plan.request.quiet_seconds, plan.request.slow_writer_seconds)
    patience = min(2 * quiet + _LOOKS_S, plan.request.wait_seconds)
    run = _Run(context, plan, time.monotonic() + patience)
    sending: tuple[RunStep, ...] = ("apply", "go")
    for step in sending:
        with around(step):
            run.step(step)
    return MoveStore(context).progress(move_id)


@dataclass
class _Run:
    context: MoveContext
    plan: MovePlan
    deadline: float
    show: Callable[[RunEvent], None] = lambda _event: None
    poll_seconds: float = _POLL_S
    sync: SyncStatus | None = None
    verified: VerifyStatus | None = None
    report: MoveReport = field(init=False)
    _timer: threading.Event = field(default_factory=threading.Event)

    def step(self, name: RunStep) -> None:
        """Run one step."""
        match name:
            case "hold":
                self.show(RunEvent("hold"))
                hold(self.context, self.plan.move_id)
            case "wait":
                self._wait()
            case "apply":
                self.show(RunEvent("apply", self.sync))
                self._until_open(self._apply, self._wait)
            case "go":
                self.show(RunEvent("go", self.sync))
                self._until_open(lambda: go(self.context, self.plan.move_id), self._apply_again)
            case "verify":
                self._verify()
            case _:
                self.show(RunEvent("report", verify=self.verified))
                self.report = report(self.context, self.plan.move_id)

    def _wait(self) -> None:
        """Look until the move is ready; a cluster that is briefly unavailable only delays it."""
        plan = self.plan
        if plan.request.is_unplanned:
            return
        while True:
            try:
                self.sync = status = wait_status(self.context, plan.move_id)
            except UnavailableError as error:
                if time.monotonic() > self.deadline:
                    raise
                log.warning("move %s waits: %s", plan.move_id, error)
            else:
                if status.ready:
                    return
                self.show(RunEvent("wait", status))
                if status.timed_out or time.monotonic() > self.deadline:
                    raise GateClosedError(
                        f"move {plan.move_id} was not synchronised within "
                        f"{plan.request.wait_seconds:g} s; clients stay on "
                        f"{plan.request.source}: {'; '.join(few(status.blocking))}"
                    )
            self._timer.wait(self.poll_seconds)

    def _apply(self) -> None:
        self.sync = apply(self.context, self.plan.move_id)

    def _apply_again(self) -> None:
        self._wait()
        self.step("apply")

    def _until_open(self, call: Callable[[], object], wait: Callable[[], None]) -> None:
        """Wait and call again while the gate refuses, until the hold or the time limit ends.

        Each step checks the gate; a slow writer may close it between two steps.
        """
        while True:
            try:
                call()
            except GateClosedError as closed:
                held = MoveStore(self.context).progress(self.plan.move_id).step in HELD
                if not held or time.monotonic() > self.deadline:
                    raise
                log.info("move %s waits again: %s", self.plan.move_id, closed)
            else:
                return
            wait()

    def _verify(self) -> None:
        while True:
            seen = self.verified = verify(self.context, self.plan.move_id)
            if seen.done or seen.timed_out:
                return
            self.show(RunEvent("verify", verify=seen))
            self._timer.wait(self.poll_seconds)


def _why(error: BaseException) -> str:
    """Return the error that ended a move; empty if interrupted, then its last wait says more."""
    if isinstance(error, SrmError):
        return str(error)
    return f"{type(error).__name__}: {error}" if isinstance(error, Exception) else ""


def _release(context: MoveContext, move_id: str, why: str) -> None:
    try:
        release(context, move_id, why)
    except ConflictError as gone:
        log.info("nothing to release: %s", gone)
    except SrmError as error:
        log.error(  # noqa: TRY400 -- the error that brought us here is the one to show
            "the release of move %s is not complete, repeat 'srm failover release %s': %s",
            move_id,
            move_id,
            error,
        )
