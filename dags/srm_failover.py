"""Moves consumer groups and producers to the other cluster, and back.

Failover and failback are the same steps with source and target exchanged:

1. **plan** - where every group stands, where it would resume, what stands in the way. Shown as a
   table in the task log. With *dry run* the move ends here.
2. **hold** - producers and consumers of the move are told to finish and leave the source. The time
   without service (RTO) counts from here.
3. **wait** - until all have left, replication has nothing left to copy and the last commit of every
   group is translated. Live progress with the number of remaining records is in the task log.
4. **apply_and_go** - writes the offsets on the target, reads them back and sends the clients there.
   It looks at the clusters itself: marking **wait** as successful opens nothing.
5. **verify** - until the groups work on the target.
6. **report** - records lost (RPO), seconds without service (RTO), records read again or skipped, by
   group. The note of the run has the summary; the report is kept in `srm-moves.internal`, and
   `srm failover report MOVE_ID --html FILE` makes a page of it.
7. **residue** - looks from time to time whether somebody still writes to the source, for as long as
   the form says, and keeps the report and the note current. No worker waits for it. It ends when
   another move takes the topics.

**release** is the way out: after a failure before *go* it sends the clients back to the source,
also when the run is marked as failed. After *go* it does nothing.

**When it is red**

- *plan*: nothing was touched. Remove the reasons named in the log and trigger again.
- *hold* or *wait*: clients are back on the source, nothing is lost. The log names who had not left
  or what was not copied in time.
- *apply_and_go* with `GateClosedError`: a group was not synchronised; clients are back on the
  source. With `UnavailableError` after it began to send clients away: clear the task, it finishes
  what it began.
- *verify*: the move is done, a group did not come back in time. Start its consumers on the target
  and clear the task.
- *residue*: what the report says then; records were written to the source after *go*, say. They are
  copied, but the application that wrote them did not follow: move it.
- *release*: clients may still be held. Clear the task once the source answers.

**Several at once** - moves of different clusters, or of different topics and groups, run side by
side. One of topics or groups that another move holds is refused by its *plan*.

**To undo a move** trigger the opposite operation.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import (
    Param,
    PokeReturnValue,
    TriggerRule,
    WeightRule,
    dag,
    get_current_context,
    setup,
    task,
    teardown,
)

from srm_airflow import moves
from srm_airflow.operators import MoveWaitOperator
from srm_airflow.rest import AirflowRest
from srm_airflow.settings import config_path, load

CONFIG = load()

RESIDUE_EVERY_S = 20.0

PARAMS = {
    "operation": Param(
        "failover",
        type="string",
        enum=["failover", "failback"],
        title="Operation",
        description="Both do the same; the word goes into the report.",
        section="Move",
    ),
    "source": Param(
        CONFIG.clusters[0],
        type="string",
        enum=list(CONFIG.clusters),
        title="From cluster",
        description="The cluster that clients leave.",
        section="Move",
    ),
    "target": Param(
        CONFIG.clusters[1],
        type="string",
        enum=list(CONFIG.clusters),
        title="To cluster",
        description="The cluster that clients go to.",
        section="Move",
    ),
    "topics": Param(
        [],
        type="array",
        items={"type": "string"},
        title="Topics",
        description="Original names, one per line, such as Payments (never P.Payments). "
        "Empty: all topics that the flows replicate.",
        section="Move",
    ),
    "groups": Param(
        [],
        type="array",
        items={"type": "string"},
        title="Consumer groups",
        description="One per line. Empty: all groups that the configuration and the control "
        "lists select and that have offsets on the topics.",
        section="Move",
    ),
    "dry_run": Param(
        default=False,
        type="boolean",
        title="Dry run",
        description="Only plan and show: nothing is changed anywhere.",
        section="Move",
    ),
    "wait_seconds": Param(
        600,
        type="number",
        minimum=1,
        maximum=21_600,
        title="Time limit from hold to go (seconds)",
        description="When it is over, clients go back to the source.",
        section="Time limits",
    ),
    "resume_seconds": Param(
        120,
        type="number",
        minimum=1,
        maximum=3_600,
        title="Time limit from go until the groups work again (seconds)",
        description="When it is over, the run fails but the move stays.",
        section="Time limits",
    ),
    "quiet_seconds": Param(
        1,
        type="number",
        minimum=0,
        maximum=300,
        title="Quiet time of the source (seconds)",
        description="Producers count as stopped when nothing was written for so long.",
        section="Time limits",
    ),
    "slow_writer_seconds": Param(
        5,
        type="number",
        minimum=0,
        maximum=3600,
        title="Quiet time where producers follow no route (seconds)",
        description="Who writes more rarely than this, and does not use srm.client, is not seen.",
        section="Time limits",
    ),
    "residue_seconds": Param(
        300,
        type="number",
        minimum=0,
        maximum=14_400,
        title="Watch the source after go (seconds)",
        description="For so long the report looks for producers that did not follow.",
        section="Time limits",
    ),
    "redirect": Param(
        "routing",
        type="string",
        enum=["routing"],
        title="How clients are redirected",
        description="routing: clients follow srm-routing.internal (srm.client).",
        section="Details",
    ),
    "accept_skips": Param(
        default=False,
        type="boolean",
        title="Accept skipped records",
        description="Move a group although the target lacks records it has still to read.",
        section="Details",
    ),
    "accept_open_transactions": Param(
        default=False,
        type="boolean",
        title="Accept open transactions",
        description="Move without the records that open transactions on the source hold back.",
        section="Details",
    ),
    "accept_stray_offsets": Param(
        default=False,
        type="boolean",
        title="Accept stray offsets",
        description="Move groups without their offsets on topics that are not replicated.",
        section="Details",
    ),
    "overwrite": Param(
        default=False,
        type="boolean",
        title="Overwrite offsets committed on the target",
        description="Replace a later offset that a consumer of the group committed there itself.",
        section="Details",
    ),
}


@setup
@task(task_id="plan", retries=2)
def plan_move(params: dict[str, Any] | None = None, dag_run: Any = None) -> dict[str, Any]:
    """Plan and show the move; refuse what cannot be done."""
    return moves.plan(dict(params or {}), dag_run.conf or {}, dag_run.run_id)


@setup
@task(retries=2)
def hold(planned: dict[str, Any]) -> dict[str, Any]:
    """Hold all clients of the move."""
    return moves.hold(planned)


@task(retries=3)
def apply_and_go(planned: dict[str, Any]) -> dict[str, Any]:
    """Apply the offsets and redirect, if the gate is open."""
    return moves.apply_and_go(planned)


@teardown(on_failure_fail_dagrun=True)
@task(retries=20)
def release(planned: dict[str, Any]) -> dict[str, Any]:
    """Send clients back to the source, unless they have gone to the target."""
    return moves.release(planned)


@task(retries=2)
def verify(planned: dict[str, Any]) -> dict[str, Any]:
    """Wait until the groups work on the target."""
    return moves.verify(planned)


@task(retries=2, trigger_rule=TriggerRule.ALL_DONE, multiple_outputs=False)
def report() -> dict[str, Any]:
    """Keep and show the report, write the run's note; fail where the move has problems."""
    context = get_current_context()
    # Not an argument: it runs whatever happened, and what follows a setup directly may not.
    result, note = moves.report(context["ti"].xcom_pull(task_ids="plan"))
    run = context["dag_run"]
    AirflowRest(run.dag_id, run.run_id).set_note(note)
    context["ti"].xcom_push(key="report", value=result)
    moves.require_ok(result)
    return result


# Whatever came of the report: as the last task it makes the run red or not.
@task.sensor(
    mode="reschedule",
    poke_interval=RESIDUE_EVERY_S,
    timeout=timedelta(hours=12).total_seconds(),
    silent_fail=True,  # a cluster that is away for a while is looked at again
    trigger_rule=TriggerRule.ALL_DONE,
)
def residue() -> PokeReturnValue:
    """Watch the source, keep report and note current; fail where the move has problems then."""
    context = get_current_context()
    result, note, over = moves.watch_residue(context["ti"].xcom_pull(task_ids="plan"))
    run = context["dag_run"]
    AirflowRest(run.dag_id, run.run_id).set_note(note)
    if over:
        moves.require_ok(result)
    return PokeReturnValue(over, result)


@dag(
    schedule=None,
    # Moves of different pairs of clusters, or of different topics and groups, need not wait for
    # each other. Two moves of the same ones are refused by the engine, by their routes.
    max_active_runs=16,
    catchup=False,
    # It only runs by hand, and a run of a paused DAG would be queued: nobody should find that out
    # on the day of a failover.
    is_paused_upon_creation=False,
    # Longer than the longest wait that the form allows: a run that is ended by this limit does not
    # run its release, so its clients wait until the lease of the hold has ended.
    dagrun_timeout=timedelta(hours=12),
    default_args={
        "retry_delay": timedelta(seconds=2),
        # Downtime counts: these tasks go before all others that wait for a worker.
        "priority_weight": 1000,
        "weight_rule": WeightRule.ABSOLUTE,
    },
    params=PARAMS,
    render_template_as_native_obj=True,
    tags=["srm", "failover"],
    doc_md=__doc__,
)
def srm_failover() -> None:
    """Plan, hold, wait, apply and go, verify, report, watch; release after a failure before go."""
    planned = plan_move()
    held = hold(planned)
    waited = MoveWaitOperator(
        task_id="wait", move=planned, config_path=str(config_path()), retries=2
    )
    gone = apply_and_go(planned)
    released = release(planned).as_teardown(setups=[planned, held])
    reported = report()
    held >> waited >> gone >> [released, verify(planned)] >> reported >> residue()


srm_failover()
