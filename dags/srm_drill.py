"""Rehearses the failover of a flow.

Runs all of a failover except its routes, on shadow names of the groups (`srm-drill.<id>.<group>` on
the target): the plans of the planned and of the unplanned move, the offsets of the unplanned one,
and a member of each shadow group that reads the first records. They are compared with the records
on the source. The groups themselves and their clients are not affected; no shadow group remains.

There is one such DAG for each flow. It runs when `A->B.drill.schedule` says so (a cron expression
in the properties file, UTC), and by hand.

**Where to look** - the task's log and return value show what was proven, the records lost if the
source had failed at that moment (RPO), and the duration of each step (RTO). `srm failover drill
--history` shows them over time.

**When it is red** - with `UnavailableError`: a cluster does not answer. Otherwise the message names
the first check that failed or the first obstacle to a failover. A failover at this moment would
have met the same. Remove the cause and clear the task. The flow's notifier receives the failure.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, dag, task

from srm.config.model import FlowConfig
from srm_airflow import engine_calls
from srm_airflow.alerts import rehearsal
from srm_airflow.settings import flow_configs, load


@task
def rehearse(flow: str) -> dict[str, Any]:
    """Carry out one drill; fail where something was not proven."""
    return engine_calls.rehearse(flow)


def drill_of(settings: FlowConfig) -> DAG:
    """Declare the DAG of one flow."""

    @dag(
        **rehearsal("drill", settings, settings.drill_schedule),
        dagrun_timeout=timedelta(hours=2),
        tags=["srm", "failover", "drill"],
        doc_md=__doc__,
    )
    def srm_drill() -> None:
        """Rehearse a failover."""
        rehearse(str(settings.flow))

    return srm_drill()


DAGS = tuple(map(drill_of, flow_configs(load())))
