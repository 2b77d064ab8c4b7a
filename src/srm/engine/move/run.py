"""Carry out a whole planned move, for callers that do not run its steps one by one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from srm.domain.move.gate import SyncStatus
from srm.domain.move.plan import MovePlan
from srm.domain.move.report import MoveReport
from srm.engine.move.decision import go, release
from srm.engine.move.holding import hold
from srm.engine.move.report import report
from srm.engine.move.steps import apply, wait_status
from srm.engine.move.store import MoveContext, MoveStore
from srm.engine.move.verify import VerifyStatus, verify
from srm.errors import ConflictError, GateClosedError, SrmError, UnavailableError

log = logging.getLogger(__name__)

RunStep = Literal["hold", "wait", "apply", "go", "verify", "report"]


@dataclass(frozen=True, slots=True)
class RunEvent:
    """What to show: the step that runs, and what was last seen of it."""

    step: RunStep
    sync: SyncStatus | None = None
    verify: VerifyStatus | None = None


def carry_out(
    context: MoveContext,
    move_id: str,
    show: Callable[[RunEvent], None] = lambda _event: None,
    poll_seconds: float = 0.5,
) -> MoveReport:
    """Run a planned move from hold to report; one that was interrupted goes on.

    Whatever ends it before clients are sent away (an error, the time limit, Ctrl-C) releases the
    hold. Groups that do not resume in time are in the report, not an error.

    Raises:
        NotFoundError: there is no such move.
        ConflictError: something blocks it.
        GateClosedError: it was not synchronised within its time limit; clients were released.
    """
    plan = MoveStore(context).plan(move_id)
    pause = threading.Event()
    try:
        show(RunEvent("hold"))
        hold(context, move_id)
        show(RunEvent("apply", sync=_wait(context, plan, show, pause, poll_seconds)))
        status = apply(context, move_id)
        show(RunEvent("go", sync=status))
        go(context, move_id)
    except BaseException:
        _release(context, move_id)
        raise
    while not (seen := verify(context, move_id)).done and not seen.timed_out:
        show(RunEvent("verify", verify=seen))
        pause.wait(poll_seconds)
    show(RunEvent("report", verify=seen))
    return report(context, move_id)


def _wait(
    context: MoveContext,
    plan: MovePlan,
    show: Callable[[RunEvent], None],
    pause: threading.Event,
    poll_seconds: float,
) -> SyncStatus:
    """Look until the move is ready; a cluster that is away for a moment only delays."""
    deadline = time.monotonic() + plan.request.wait_seconds
    while True:
        try:
            status = wait_status(context, plan.move_id)
        except UnavailableError as error:
            if time.monotonic() > deadline:
                raise
            log.warning("move %s waits: %s", plan.move_id, error)
        else:
            if status.ready:
                return status
            show(RunEvent("wait", sync=status))
            if status.timed_out or time.monotonic() > deadline:
                raise GateClosedError(
                    f"move {plan.move_id} was not synchronised within "
                    f"{plan.request.wait_seconds:g} s, clients stay on {plan.request.source}: "
                    f"{'; '.join(status.blocking)}"
                )
        pause.wait(poll_seconds)


def _release(context: MoveContext, move_id: str) -> None:
    try:
        release(context, move_id)
    except ConflictError as gone:
        log.info("nothing to release: %s", gone)
    except SrmError as error:
        log.error(  # noqa: TRY400 -- the error that brought us here is the one to show
            "the hold of move %s is still on, release it with 'srm failover release %s': %s",
            move_id,
            move_id,
            error,
        )
