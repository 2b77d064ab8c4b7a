"""Carry out a whole planned move, for callers that do not run its steps one by one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final

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

_SENDING: Final[tuple[RunStep, ...]] = ("apply", "go")
_POLL_S = 0.5
_LOOKS_S = 5.0


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Progress for display: the running step and its latest status."""

    step: RunStep
    sync: SyncStatus | None = None
    verify: VerifyStatus | None = None


def _alone(_step: RunStep) -> AbstractContextManager[object]:
    return nullcontext()


def carry_out(
    context: MoveContext,
    move_id: str,
    show: Callable[[RunEvent], None] = lambda _event: None,
    poll_seconds: float = _POLL_S,
    around: Around = _alone,
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
    run = _Run(context, plan, show, poll_seconds, plan.request.wait_seconds)
    for step in RUN_STEPS:
        try:
            with around(step.name):
                run.step(step.name)
        except BaseException as error:
            if step.releases:
                _release(context, move_id, _why(error))
            raise
    return run.result


def apply_and_go(context: MoveContext, move_id: str, around: Around = _alone) -> MoveProgress:
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
    run = _Run(context, plan, lambda _event: None, _POLL_S, patience)
    for step in _SENDING:
        with around(step):
            run.step(step)
    return MoveStore(context).progress(move_id)


class _Run:
    """The steps of one move, and the state between them."""

    def __init__(
        self,
        context: MoveContext,
        plan: MovePlan,
        show: Callable[[RunEvent], None],
        poll_seconds: float,
        patience_seconds: float,
    ) -> None:
        self._context = context
        self._plan = plan
        self._show = show
        self._poll_seconds = poll_seconds
        self._deadline = time.monotonic() + patience_seconds
        self._pause = threading.Event()
        self._status: SyncStatus | None = None
        self._verified: VerifyStatus | None = None
        self._calls: Mapping[RunStep, Callable[[], None]] = {
            "hold": self._hold,
            "wait": self._wait,
            "apply": self._apply,
            "go": self._go,
            "verify": self._verify,
            "report": self._report,
        }

    def step(self, name: RunStep) -> None:
        """Run one step."""
        self._calls[name]()

    @property
    def result(self) -> MoveReport:
        """The report, after the last step."""
        return self._result

    def _hold(self) -> None:
        self._show(RunEvent("hold"))
        hold(self._context, self._plan.move_id)

    def _wait(self) -> None:
        """Look until the move is ready; a cluster that is briefly unavailable only delays it."""
        plan = self._plan
        if plan.request.is_unplanned:
            return
        while True:
            try:
                self._status = status = wait_status(self._context, plan.move_id)
            except UnavailableError as error:
                if time.monotonic() > self._deadline:
                    raise
                log.warning("move %s waits: %s", plan.move_id, error)
            else:
                if status.ready:
                    return
                self._show(RunEvent("wait", sync=status))
                if status.timed_out or time.monotonic() > self._deadline:
                    raise GateClosedError(
                        f"move {plan.move_id} was not synchronised within "
                        f"{plan.request.wait_seconds:g} s; clients stay on "
                        f"{plan.request.source}: {'; '.join(few(status.blocking))}"
                    )
            self._pause.wait(self._poll_seconds)

    def _apply(self) -> None:
        self._show(RunEvent("apply", sync=self._status))
        self._until_open(self._apply_once, self._wait)

    def _apply_once(self) -> None:
        self._status = apply(self._context, self._plan.move_id)

    def _go(self) -> None:
        self._show(RunEvent("go", sync=self._status))
        self._until_open(self._go_once, self._apply_again)

    def _go_once(self) -> None:
        go(self._context, self._plan.move_id)

    def _apply_again(self) -> None:
        self._wait()
        self._apply()

    def _until_open(self, call: Callable[[], None], wait: Callable[[], None]) -> None:
        """Wait and call again while the gate refuses, until the hold or the time limit ends.

        Each step checks the gate; a slow writer may close it between two steps.
        """
        while True:
            try:
                return call()
            except GateClosedError as closed:
                held = MoveStore(self._context).progress(self._plan.move_id).step in HELD
                if not held or time.monotonic() > self._deadline:
                    raise
                log.info("move %s waits again: %s", self._plan.move_id, closed)
            wait()

    def _verify(self) -> None:
        while True:
            seen = self._verified = verify(self._context, self._plan.move_id)
            if seen.done or seen.timed_out:
                return
            self._show(RunEvent("verify", verify=seen))
            self._pause.wait(self._poll_seconds)

    def _report(self) -> None:
        self._show(RunEvent("report", verify=self._verified))
        self._result = report(self._context, self._plan.move_id)


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
