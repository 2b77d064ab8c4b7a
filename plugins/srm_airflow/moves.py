"""The steps of a move as the tasks of srm_failover call them.

A task knows its move by a small dictionary, the return value of the first task; everything else
is read from the clusters again, so that each task may be repeated on its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from srm import telemetry
from srm.domain.moves.report import Approval
from srm.domain.moves.request import (
    FORM,
    MoveRequest,
    RunSettings,
    ends,
    read,
    run_move_id,
    settings_of,
)
from srm.domain.text.amount import reasons_text
from srm.engine.moves import holding, planning, steps, verification
from srm.engine.moves.context import MoveContext
from srm.errors import ConflictError, NotFoundError
from srm.pages.html import report_page
from srm.pages.moves import as_text, plan_summary, plan_view, report_line, report_view
from srm.pages.reports import (
    approval_subject,
    approval_text,
    plan_page,
    report_note,
    report_summary,
)
from srm_airflow.alerts import Patience, notify
from srm_airflow.compat import AirflowFailException, AirflowSkipException
from srm_airflow.engine_calls import opened_move
from srm_airflow.outcome import as_json, engine_errors

logger = logging.getLogger(__name__)

DRY_RUN: Final = "dry_run"
FORM_ONLY: Final = frozenset(setting.name for setting in settings_of(RunSettings))
"""Settings of the form that are not of the move."""
PAGE_KEY: Final = "report_page"
LONGEST_PAGE: Final = 2_000_000
"""Characters that are kept in Airflow's database for each run; a larger page is made by
``srm failover report``."""
VERIFY_EVERY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Reported:
    """Outcome of a run: the result for programs, the note, and the page if there is one.

    ``over``: nothing is left to watch.
    """

    result: dict[str, Any]
    note: str
    page: str = ""
    over: bool = True


def plan(
    params: Mapping[str, Any], conf: Mapping[str, Any], run_id: str, clusters: Sequence[str]
) -> tuple[dict[str, Any], str]:
    """Plan the move of a run; describe it to the tasks that follow, and as a page.

    ``conf``: the configuration of the run. ``clusters``: the clusters of the DAG; of two the
    operation says which one clients leave. AirflowFailException: a key is unknown, or an obstacle
    remains that waiting does not remove; nothing was changed.
    """
    with engine_errors():
        # With the conf, as Airflow accepts keys that the form does not have, and ignores them.
        given = {**conf, **params}
        named = (given.get(end) for end in ("source", "target"))
        source, target = ends(clusters, str(given.get("operation")), *named)
        given |= {"source": source, "target": target}
        run = read(RunSettings, {k: given.pop(k) for k in FORM_ONLY & given.keys()})
        request = read(MoveRequest, given, FORM)
        move_id = run_move_id(request.operation, clusters, run_id)
        with (
            _span({**asdict(request), "move_id": move_id}, "plan"),
            opened_move(request.source, request.target, unplanned=request.is_unplanned) as context,
        ):
            planned = planning.plan(context, request, move_id, dry_run=run.dry_run)
            wanted = context.forward.config.failover_approval
        logger.info("The plan:\n%s", as_text(plan_view(planned)))
        if planned.blocking and not run.dry_run:
            raise ConflictError(
                f"{reasons_text(planned.blocking)}; so the move cannot start, nothing was changed"
            )
    required = wanted == "always" or (wanted == "unplanned" and request.is_unplanned)
    described = {
        **plan_summary(planned),
        DRY_RUN: run.dry_run,
        "approval": {
            "required": required or run.ask_approval,
            "seconds": run.approval_seconds,
            "subject": approval_subject(planned),
            "text": approval_text(planned),
            "numbers": planned.numbers(),
        },
    }
    return described, plan_page(planned)


def hold(planned: Mapping[str, Any], answer: Mapping[str, Any] | None) -> dict[str, Any]:
    """Request the clients of the move to stop, finish and leave.

    ``answer``: the stored answer of the approving task, None where no approval is needed.
    """
    if planned[DRY_RUN]:
        raise AirflowSkipException("dry run: only the plan was requested")
    approved = bool(answer and answer["approved"])
    if planned["approval"]["required"] and not approved:
        raise AirflowFailException(
            "the move needs an approval and has not been approved: clear task approve and answer "
            "there"
        )
    with _open(planned, "hold") as context:
        if answer and approved:
            _keep_approval(context, planned, answer)
        progress = holding.hold(context, planned["move_id"])
    logger.info("Clients are held; lag at hold: %s", dict(progress.lag_at_hold))
    return {"step": progress.step, "lag_at_hold": dict(progress.lag_at_hold)}


def apply_and_go(planned: Mapping[str, Any], held: bool) -> dict[str, Any]:  # noqa: FBT001
    """Write the offsets on the target and send the clients there; each checks the gate.

    AirflowFailException: a group is not synchronised, whatever the state of the task that waited.
    """
    if not held:
        raise AirflowSkipException("no client is held")
    with _open(planned, "apply_and_go") as context:
        progress = steps.apply_and_go(context, planned["move_id"], partial(_span, planned))
    logger.info("Clients go to %s", planned["target"])
    return {"step": progress.step}


def release(planned: Mapping[str, Any]) -> dict[str, Any]:
    """Send held clients back to the source, unless they have been sent to the target."""
    if planned[DRY_RUN]:
        return {"step": "planned"}
    with _open(planned, "release") as context:
        try:
            progress = holding.release(context, planned["move_id"])
        except (ConflictError, NotFoundError) as nothing_held:
            # Gone to the target, the normal end, or never planned.
            logger.info("Nothing to release: %s", nothing_held)
            return {"step": "kept"}
    logger.warning("Clients continue on %s", planned["source"])
    return {"step": progress.step}


def verify(planned: Mapping[str, Any], context: Mapping[str, Any]) -> dict[str, Any]:
    """Wait until the groups work on the target; the move itself says for how long.

    ``context``: of the task, for the notifier.
    """
    patience = Patience(planned)
    with _open(planned, "verify") as opened:
        line = ""
        while not (status := verification.verify(opened, planned["move_id"])).done:
            waiting = reasons_text(
                status.waiting + tuple(f"please {request}" for request in status.asks)
            )
            if status.timed_out:
                raise ConflictError(
                    f"{waiting} {status.elapsed_seconds:.0f} s after go: start its consumers "
                    f"there, then clear this task"
                )
            if waiting != line:
                line = waiting
                logger.info("Waiting: %s", line)
            if patience.is_over(status.elapsed_seconds):
                notify(
                    "waiting", f"{status.elapsed_seconds:.0f} s after go: {line}", planned, context
                )
            time.sleep(VERIFY_EVERY_S)
    return as_json(status)


def report(
    planned: Mapping[str, Any] | None,
    answer: Mapping[str, Any] | None = None,
    reason: Callable[[], str] = str,
    *,
    watches: bool = False,
) -> Reported:
    """Keep and show the report; ``over`` says whether residue is still to be watched.

    ``planned``: the move, None where it was not planned. ``answer``: what the approving task has
    kept. ``reason``: returns why a step failed, empty where none did. ``watches``: look for residue
    once before.
    """
    if planned is None:
        why = reason() or "the move was not planned, nothing was changed: see task plan"
        return Reported({"move_id": "", "problems": [why]}, why)
    if planned[DRY_RUN]:
        blocking = planned["blocking"]
        run = f"dry run of {planned['move_id']}"
        refused = f"{reasons_text(blocking)}\n\n{run}: would be refused"
        return Reported(dict(planned), refused if blocking else f"{run}: could start")
    if answer and not answer["approved"]:
        note = f"{answer['by']} did not approve {planned['move_id']}, nothing was changed"
        return Reported({**planned, "step": "rejected"}, note)
    with _open(planned, "residue" if watches else "report") as context:
        look = verification.watch_residue if watches else verification.report
        made = look(context, planned["move_id"])
        page = _page(context, planned["move_id"])
    shown = report_line(made) if watches else f"The report:\n{as_text(report_view(made))}"
    logger.info("%s", shown)
    note = report_note(made, "" if made.ok else reason())
    return Reported(report_summary(made), note, page, made.residue_over)


watch_residue = partial(report, watches=True)
"""Look for residue once; ``over`` says whether this was the last look."""


def require_startable(planned: Mapping[str, Any]) -> None:
    """Make a dry run red that has found something in the way of the move."""
    if planned["blocking"]:
        raise AirflowFailException(f"would be refused: {reasons_text(planned['blocking'])}")


def _page(context: MoveContext, move_id: str) -> str:
    """Return the page as it is kept in Airflow; nothing where it is too large for that."""
    page = report_page(verification.kept_report(context, move_id))
    return page if len(page) <= LONGEST_PAGE else ""


def require_ok(result: Mapping[str, Any]) -> None:
    """Fail the run when the outcome of the move has problems."""
    if result.get("problems"):
        raise AirflowFailException(
            f"move {result['move_id'] or '-'}: {reasons_text(result['problems'])}"
        )


def _keep_approval(
    context: MoveContext, planned: Mapping[str, Any], answer: Mapping[str, Any]
) -> None:
    shown = planned["approval"]
    approval = Approval(answer["by"], "Airflow", answer["time_ms"], shown["text"], shown["numbers"])
    verification.approve(context, planned["move_id"], approval)


@contextmanager
def _open(planned: Mapping[str, Any], step: str) -> Iterator[MoveContext]:
    unplanned = planned["mode"] == "unplanned"
    with (
        _span(planned, step),
        engine_errors(),
        opened_move(planned["source"], planned["target"], unplanned=unplanned) as context,
        steps.offer_way_out(context, planned["move_id"]),
    ):
        yield context


def _span(planned: Mapping[str, Any], step: str) -> AbstractContextManager[telemetry.Notes]:
    return telemetry.span(
        f"move.{step}",
        move=planned["move_id"],
        flow=f"{planned['source']}->{planned['target']}",
        operation=planned["operation"],
        mode=planned["mode"],
    )
