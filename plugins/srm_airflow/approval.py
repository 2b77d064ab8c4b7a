"""The step of a move in which a person approves what it is expected to cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskAwaitingInput

from srm_airflow.alerts import Patience, tell
from srm_airflow.reasons import reason_kept

if TYPE_CHECKING:
    from airflow.sdk import Context

APPROVAL_KEY: Final = "approval"


class MoveApprovalOperator(ApprovalOperator):
    """Ask for the approval of a planned move, with its numbers in the text.

    Skipped where none is asked for. The answer is kept as XCom ``approval`` and goes into the move
    with the hold, which refuses a move that needs one and has none: so marking this task opens
    nothing. While nobody answers the notifier is told, ever more rarely, until the time is over.

    Args:
        move: what the planning task returned.
    """

    template_fields: Sequence[str] = ("move",)
    ui_color = "#f5c8c8"

    def __init__(self, *, move: Any, **kwargs: Any) -> None:
        super().__init__(subject="Approve the move", **kwargs)
        self.move = move

    def execute(self, context: Context) -> NoReturn:
        """Ask, and park the task.

        Raises:
            AirflowSkipException: nobody has to approve this move.
            TaskAwaitingInput: until somebody answers, or the notifier is to be told.
        """
        asked = self.move[APPROVAL_KEY]
        if self.move["dry_run"]:
            raise AirflowSkipException("dry run: the plan is all that was asked for")
        if not asked["required"]:
            raise AirflowSkipException("nobody has to approve this move")
        self.subject, self.body = asked["subject"], asked["text"]
        tell("approval", f"approval is asked for. {asked['subject']}", self.move, context)
        since = time.time()
        try:
            super().execute(context)
        except TaskAwaitingInput:
            self._park(since)
        raise AssertionError("an approval that is asked for parks the task")

    def execute_complete(self, context: Context, event: dict[str, Any], since: float) -> Any:
        """Keep the answer; without one tell the notifier and wait again, or give up.

        Raises:
            AirflowFailException: nobody has answered in time.
            DownstreamTasksSkipped: the answer is no.
        """
        with reason_kept(context):
            if event.get("error_type") == "timeout":
                self._wait_on(context, since)
            user = event.get("responded_by_user") or {}
            approved = event["chosen_options"] == [self.APPROVE]
            who = user.get("name") or user.get("id") or "somebody"
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
                f"nobody approved the move within {limit:.0f} s, nothing was touched: trigger it "
                "again"
            )
        what = f"approval has not been given for {waited:.0f} s"
        tell("waiting", what, self.move, context)
        self._park(since)

    def _park(self, since: float) -> NoReturn:
        waited = time.time() - since
        limit = float(self.move[APPROVAL_KEY]["seconds"])
        due = Patience(self.move).remaining_s(waited)
        raise TaskAwaitingInput(
            method_name=self.execute_complete.__name__,
            kwargs={"since": since},
            timeout=timedelta(seconds=max(1.0, min(due, limit - waited))),
        )
