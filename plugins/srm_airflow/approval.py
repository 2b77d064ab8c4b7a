"""The step of a move in which a person approves what it is expected to cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.definitions.param import ParamsDict

from srm_airflow.additions import RunLink
from srm_airflow.alerts import Patience, notify
from srm_airflow.compat import AirflowFailException, AirflowSkipException, TaskParked, park
from srm_airflow.outcome import reason_kept

if TYPE_CHECKING:
    from airflow.sdk import Context

APPROVAL_KEY: Final = "approval"


class MoveApprovalOperator(ApprovalOperator):
    """Wait for the approval of a planned move, with its numbers in the text.

    Skipped where none is needed. The answer is stored as XCom ``approval`` and passed to the hold,
    which refuses a move that lacks a required approval: marking this task opens nothing. Until an
    operator answers, the notifier receives reminders at growing intervals. ``move``: what the
    planning task returned.
    """

    template_fields: Sequence[str] = ("move",)
    ui_color = "#f5c8c8"
    operator_extra_links = (RunLink(),)

    def __init__(self, *, move: Any, **kwargs: Any) -> None:
        super().__init__(subject="Approve the move", **kwargs)
        # Up to Airflow 3.1 the question takes over the DAG's parameters, and refuses its answer.
        self.params = ParamsDict()
        self.move = move

    def execute(self, context: Context) -> NoReturn:
        """Request the approval, and park the task until an answer or a reminder is due."""
        approval = self.move[APPROVAL_KEY]
        if self.move["dry_run"]:
            raise AirflowSkipException("dry run: only the plan was requested")
        if not approval["required"]:
            raise AirflowSkipException("the move needs no approval")
        self.subject, self.body = approval["subject"], approval["text"]
        notify("approval", f"the move needs an approval. {approval['subject']}", self.move, context)
        since = time.time()
        try:
            super().execute(context)
        except TaskParked:
            self._park(context, since)
        raise AssertionError("a required approval parks the task")

    def execute_complete(self, context: Context, event: dict[str, Any], since: float) -> Any:
        """Store the answer; without one notify and wait again, or fail when time is up."""
        with reason_kept(context):
            if event.get("error_type") == "timeout":
                self._wait_on(context, since)
            user = event.get("responded_by_user") or {}
            approved = event["chosen_options"] == [self.APPROVE]
            who = user.get("name") or user.get("id") or "an unknown user"
            answer = {
                "approved": approved,
                "by": who,
                "time_ms": round(event["responded_at"].timestamp() * 1000),
            }
            context["ti"].xcom_push(key=APPROVAL_KEY, value=answer)
            self.log.info("%s by %s", "Approved" if approved else "Rejected", who)
        return super().execute_complete(context, event)

    def _wait_on(self, context: Context, since: float) -> NoReturn:
        limit = float(self.move[APPROVAL_KEY]["seconds"])
        waited = time.time() - since
        if waited >= limit:
            raise AirflowFailException(
                f"the move was not approved within {limit:.0f} s; nothing was changed: trigger it "
                "again"
            )
        what = f"approval has not been given for {waited:.0f} s"
        notify("waiting", what, self.move, context)
        self._park(context, since)

    def _park(self, context: Context, since: float) -> NoReturn:
        waited = time.time() - since
        limit = float(self.move[APPROVAL_KEY]["seconds"])
        due = Patience(self.move).remaining_s(waited)
        timeout = timedelta(seconds=max(1.0, min(due, limit - waited)))
        method = self.execute_complete.__name__
        park(self, context["ti"].id, method, {"since": since}, timeout)
