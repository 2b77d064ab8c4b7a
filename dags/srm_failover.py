"""Moves consumer groups and producers to the other cluster, and back.

One DAG for each pair of clusters (`srm_failover.P.B`), and `srm_failover` for scripts, which takes
any pair. Failover and failback are the same steps. In `srm_failover.P.B` a failover moves clients
from P to B, a failback from B to P. *From cluster* and *To cluster* override this. The steps:

1. **plan** - the offset of every group, where it would resume, and what prevents the move. Shown as
   a table in the task log and in the tab *Report of the move*. A *dry run* ends here.
2. **approve** - a run that needs an approval (*unplanned* always, unless the configuration says
   otherwise) waits here: tab *Required Actions*, with the numbers of the plan. No client is held
   during this wait.
3. **hold** - producers and consumers of the move receive the request to finish and leave the
   source. The time without service (RTO) starts here. *Unplanned*: the flow from the source is
   paused, and the move does not wait for clients.
4. **wait** - until all clients have left, the replication lag is 0 and the last commit of every
   group is translated. Live progress with the number of remaining records is in the task log.
   Skipped in an unplanned move.
5. **apply_and_go** - writes the offsets on the target, reads them back and sends the clients there.
   It checks the clusters itself: marking **wait** as successful opens nothing.
6. **verify** - until the groups work on the target.
7. **report** - records lost (RPO), seconds without service (RTO), records read again or skipped, by
   group. The note of the run has the summary, its tab *Report of the move* the whole page; the
   report is kept in `__srm-moves`, and `srm failover report` shows, exports and checks it.
8. **residue** - checks periodically for records that clients still write to the source, for the
   time set in the form. It keeps the report and the note current without a worker. It ends when
   another move takes the topics.

**release** is the way out: after a failure before *go* it sends the clients back to the source,
also when the run is marked as failed. After *go* it does nothing.

**Mode** - *planned*: both clusters live, nothing is lost. *unplanned*: the source is abandoned and
never contacted, so it may be down or partly down. Groups resume at their last checkpoint. The text
of the approval shows the cost.

**When it is red** the note of the run begins with the reason.

- *plan*: nothing was changed. Remove the reasons and trigger again.
- *approve*: no operator answered in time. Nothing was changed.
- *hold* or *wait*: clients are back on the source, nothing is lost. The note names the clients that
  had not left, or what was not copied in time.
- *apply_and_go* with `GateClosedError`: a group was not synchronised; clients are back on the
  source. With `UnavailableError` after it began to redirect clients: clear the task, it completes
  the redirect.
- *verify*: the move is done, a group did not come back in time. Start its consumers on the target
  and clear the task.
- *residue*: the report has a new problem, such as records written to the source after *go*. They
  are copied, but the application that wrote them did not follow: move it.
- *release*: clients may still be held. Clear the task once the source answers.

**Several at once** - moves of different clusters, or of different topics and groups, run in
parallel. *plan* refuses topics or groups that another move holds.

**To undo a move** trigger the opposite operation.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import (
    DAG,
    PokeReturnValue,
    TriggerRule,
    WeightRule,
    dag,
    get_current_context,
    get_parsing_context,
    setup,
    task,
    teardown,
)

from srm_airflow import move_form, moves
from srm_airflow.alerts import alert_failure, notify
from srm_airflow.approval import APPROVAL_KEY, MoveApprovalOperator
from srm_airflow.compat import DownstreamTasksSkipped
from srm_airflow.move_form import form
from srm_airflow.operators import MoveWaitOperator
from srm_airflow.outcome import reason_in, reason_kept
from srm_airflow.rest import AirflowRest
from srm_airflow.settings import config_path, dag_id, load, pairs

CONFIG = load()

RESIDUE_EVERY_S = 20.0


@setup
@task(task_id="plan", retries=2)
def plan_move(
    clusters: list[str], params: dict[str, Any] | None = None, dag_run: Any = None
) -> dict[str, Any]:
    """Plan and show the move; refuse what cannot be done."""
    context = get_current_context()
    with reason_kept(context):
        conf = dag_run.conf or {}
        planned, page = moves.plan(dict(params or {}), conf, dag_run.run_id, clusters)
    context["ti"].xcom_push(key=moves.PAGE_KEY, value=page)
    return planned


# What follows a setup directly has to have the usual trigger rule, so this follows the approval
# alone, which is skipped where none is needed, and pulls the plan.
@setup
@task(retries=2, trigger_rule=TriggerRule.NONE_FAILED)
def hold() -> dict[str, Any]:
    """Hold all clients of an approved move."""
    context = get_current_context()
    ti = context["ti"]
    planned = ti.xcom_pull(task_ids="plan")
    with reason_kept(context):
        held = moves.hold(planned, ti.xcom_pull(task_ids="approve", key=APPROVAL_KEY))
    if planned["mode"] == "unplanned":
        ti.xcom_push(key="return_value", value=held)
        raise DownstreamTasksSkipped(tasks=["wait"])
    return held


# As above: it follows the wait alone, which an unplanned move passes over.
@task(retries=3, trigger_rule=TriggerRule.NONE_FAILED)
def apply_and_go() -> dict[str, Any]:
    """Apply the offsets and redirect, if the gate is open."""
    context = get_current_context()
    ti = context["ti"]
    with reason_kept(context):
        return moves.apply_and_go(
            ti.xcom_pull(task_ids="plan"), ti.xcom_pull(task_ids="hold") is not None
        )


def release(planned: dict[str, Any]) -> dict[str, Any]:
    """Send clients back to the source, unless they have gone to the target."""
    with reason_kept(get_current_context()):
        return moves.release(planned)


@task(retries=2)
def verify(planned: dict[str, Any]) -> dict[str, Any]:
    """Wait until the groups work on the target."""
    context = get_current_context()
    with reason_kept(context):
        return moves.verify(planned, context)


@task(
    retries=2,
    trigger_rule=TriggerRule.ALL_DONE,
    multiple_outputs=False,
    on_failure_callback=[],  # the task has sent its own alert
)
def report() -> dict[str, Any]:
    """Keep and show the report, write the run's note; fail where the move has problems."""
    context = get_current_context()
    ti = context["ti"]
    # Not an argument: it runs whatever happened, and what follows a setup directly may not.
    planned, answer = _move_of(ti)
    outcome = moves.report(planned, answer, lambda: reason_in(ti))
    _publish(context, outcome)
    ti.xcom_push(key="report", value=outcome.result)
    if planned and not planned[moves.DRY_RUN]:
        notify("done", outcome.note.splitlines()[0], planned, context)
    moves.require_ok(outcome.result)
    return outcome.result


# Whatever came of the report: as the last task it makes the run red or not.
@task.sensor(
    mode="reschedule",
    poke_interval=RESIDUE_EVERY_S,
    timeout=timedelta(hours=12).total_seconds(),
    silent_fail=True,  # a cluster that is unavailable for a while is checked again later
    retries=20,  # Airflow fails a look whose worker ends only after the next look is queued
    trigger_rule=TriggerRule.ALL_DONE,
)
def residue() -> PokeReturnValue:
    """Watch the source, keep report and note current; fail where the move has problems then."""
    context = get_current_context()
    ti = context["ti"]
    outcome = moves.watch_residue(*_move_of(ti), lambda: reason_in(ti))
    _publish(context, outcome)
    if outcome.over:
        moves.require_ok(outcome.result)
    return PokeReturnValue(outcome.over, outcome.result)


def _move_of(ti: Any) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return the move of a run, and what the approving task was answered."""
    planned = ti.xcom_pull(task_ids="plan")
    return planned, ti.xcom_pull(task_ids="approve", key=APPROVAL_KEY)


def _publish(context: Any, outcome: moves.Reported) -> None:
    run = context["dag_run"]
    AirflowRest(run.dag_id, run.run_id).set_note(outcome.note)
    if outcome.page:
        context["ti"].xcom_push(key=moves.PAGE_KEY, value=outcome.page)


def failover_dag(name: str, clusters: tuple[str, ...]) -> DAG:
    """Declare the moves between some clusters."""

    @dag(
        dag_id=name,
        schedule=None,
        # Moves of different topics and groups need not wait for each other. Two moves of the same
        # ones are refused by the engine, by their routes.
        max_active_runs=16,
        catchup=False,
        # It only runs by hand, and a run of a paused DAG would be queued: no operator should find
        # that out on the day of a failover.
        is_paused_upon_creation=False,
        # Longer than the longest waits that the form allows: a run that is ended by this limit does
        # not run its release, so its clients wait until the lease of the hold has ended.
        dagrun_timeout=timedelta(hours=18),
        default_args={
            "retry_delay": timedelta(seconds=2),
            # Downtime counts: these tasks go before all others that wait for a worker.
            "priority_weight": 1000,
            "weight_rule": WeightRule.ABSOLUTE,
            "on_failure_callback": alert_failure,
        },
        params=form(clusters, move_form.read_choices(CONFIG, clusters)),
        render_template_as_native_obj=True,
        tags=["srm", "failover"],
        doc_md=__doc__,
    )
    def declare() -> None:
        """Plan, approve, hold, wait, apply and go, verify, report, watch; release on failure."""
        planned = plan_move(list(clusters))
        approved = MoveApprovalOperator(task_id="approve", move=planned, retries=2)
        held = hold()
        waited = MoveWaitOperator(
            task_id="wait", move=planned, config_path=str(config_path()), retries=2
        )
        gone = apply_and_go()
        # A teardown task serves one DAG only.
        sent_back = teardown(on_failure_fail_dagrun=True)(task(retries=20)(release))
        released = sent_back(planned).as_teardown(setups=[planned, held])
        reported = report()
        approved >> held >> waited >> gone >> [released, verify(planned)] >> reported >> residue()

    return declare()


WANTED = get_parsing_context().dag_id  # by a task that is about to run: None while parsing
ANY = dag_id("failover")
IDS = {ANY: CONFIG.clusters, **{f"{ANY}.{'.'.join(pair)}": pair for pair in pairs(CONFIG)}}
DAGS = tuple(failover_dag(name, of) for name, of in IDS.items() if WANTED in {None, name})
