"""The steps of a move as the tasks of srm_failover call them.

A task knows its move by a small dictionary, the return value of the first task; everything else
is read from the clusters again, so that each task may be repeated on its own.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from srm.domain.move.request import MoveRequest
from srm.engine import move
from srm.engine.move.store import MoveContext
from srm.errors import ConflictError, NotFoundError
from srm.pages.moves import as_text, plan_summary, plan_view, reasons_text, report_line, report_view
from srm_airflow.engine_calls import opened_move
from srm_airflow.outcome import as_json, engine_errors

logger = logging.getLogger(__name__)

DRY_RUN: Final = "dry_run"
VERIFY_EVERY_S: Final = 0.5
_ID_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9_.-]+")


def plan(params: Mapping[str, Any], conf: Mapping[str, Any], run_id: str) -> dict[str, Any]:
    """Plan the move that a run asks for, show it, and describe it to the tasks that follow.

    Raises:
        AirflowFailException: a key is unknown, or something stands in the way that no waiting
            removes; nothing was touched.
    """
    with engine_errors():
        dry_run = bool(params.get(DRY_RUN))
        # With the conf, as Airflow accepts keys that the form does not have, and ignores them.
        asked = {**conf, **params}
        request = MoveRequest.parse({k: v for k, v in asked.items() if k != DRY_RUN})
        move_id = move_id_of(request, run_id)
        with opened_move(request.source, request.target) as context:
            planned = move.plan(context, request, move_id, dry_run=dry_run)
        logger.info("The plan:\n%s", as_text(plan_view(planned)))
        if planned.blocking and not dry_run:
            raise ConflictError(
                f"the move cannot start, nothing was touched: {reasons_text(planned.blocking)}"
            )
    return {**plan_summary(planned), DRY_RUN: dry_run}


def move_id_of(request: MoveRequest, run_id: str) -> str:
    """Derive the move's id from the run, so that a repeated task finds the same move."""
    return f"{request.operation}-{_ID_CHARACTERS.sub('-', run_id).strip('-')}"


def hold(planned: Mapping[str, Any]) -> dict[str, Any]:
    """Tell the clients of the move to stop, finish and leave.

    Raises:
        AirflowSkipException: the run only shows the plan.
    """
    if planned[DRY_RUN]:
        raise AirflowSkipException("dry run: the plan is all that was asked for")
    with _open(planned) as context:
        progress = move.hold(context, planned["move_id"])
    logger.info("Clients are held; lag at hold: %s", dict(progress.lag_at_hold))
    return {"step": progress.step, "lag_at_hold": dict(progress.lag_at_hold)}


def apply_and_go(planned: Mapping[str, Any]) -> dict[str, Any]:
    """Write the offsets on the target and send the clients there; each checks the gate.

    Raises:
        AirflowFailException: a group is not synchronised (GateClosedError), whatever the state of
            the task that waited for it.
    """
    with _open(planned) as context:
        progress = move.apply_and_go(context, planned["move_id"])
    logger.info("Clients go to %s", planned["target"])
    return {"step": progress.step, "rpo_records": progress.rpo_records}


def release(planned: Mapping[str, Any]) -> dict[str, Any]:
    """Send held clients back to the source, unless they have been sent to the target."""
    if planned[DRY_RUN]:
        return {"step": "planned"}
    with _open(planned) as context:
        try:
            progress = move.release(context, planned["move_id"])
        except (ConflictError, NotFoundError) as nothing_held:
            # Gone to the target, the normal end, or never planned.
            logger.info("Nothing to release: %s", nothing_held)
            return {"step": "kept"}
    logger.warning("Clients continue on %s", planned["source"])
    return {"step": progress.step}


def verify(planned: Mapping[str, Any]) -> dict[str, Any]:
    """Wait until the groups work on the target; the move itself says for how long.

    Raises:
        AirflowFailException: a group that had members at the hold did not resume in time.
    """
    with _open(planned) as context:
        line = ""
        while not (status := move.verify(context, planned["move_id"])).done:
            waiting = reasons_text(status.waiting)
            if status.timed_out:
                raise ConflictError(
                    f"{status.elapsed_seconds:.0f} s after go {waiting}: start its consumers "
                    f"there, then clear this task"
                )
            if waiting != line:
                line = waiting
                logger.info("Waiting: %s", line)
            time.sleep(VERIFY_EVERY_S)
    return as_json(status)


def report(planned: Mapping[str, Any] | None) -> tuple[dict[str, Any], str]:
    """Keep and show the report; return it with the line for the run's note.

    Raises:
        AirflowFailException: there is no plan to report on.
    """
    if planned is None:
        raise AirflowFailException("the move was not planned, nothing was touched: see task plan")
    if planned[DRY_RUN]:
        blocking = planned["blocking"]
        verdict = f"would be refused: {reasons_text(blocking)}" if blocking else "could start"
        return dict(planned), f"dry run of {planned['move_id']}: {verdict}"
    with _open(planned) as context:
        result = move.report(context, planned["move_id"])
    logger.info("The report:\n%s", as_text(report_view(result)))
    return as_json(result), report_line(result)


def watch_residue(planned: Mapping[str, Any] | None) -> tuple[dict[str, Any], str, bool]:
    """Look for residue once; return the report, the run's note, whether this was the last look."""
    if planned is None or planned[DRY_RUN]:
        return *report(planned), True
    with _open(planned) as context:
        watch = move.watch_residue(context, planned["move_id"])
    logger.info("%s", line := report_line(watch.report))
    return as_json(watch.report), line, watch.over


def require_ok(result: Mapping[str, Any]) -> None:
    """Make the run red when the move is not what was asked for.

    Raises:
        AirflowFailException: the report names problems.
    """
    if result.get("problems"):
        raise AirflowFailException(f"move {result['move_id']}: {reasons_text(result['problems'])}")


@contextmanager
def _open(planned: Mapping[str, Any]) -> Iterator[MoveContext]:
    with engine_errors(), opened_move(planned["source"], planned["target"]) as context:
        yield context
