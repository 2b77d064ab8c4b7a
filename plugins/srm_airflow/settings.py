"""Places of srm's configuration, clusters and Spark applications, for DAGs and operators.

Imported while DAG files are parsed, so it reads one local file and imports no client.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from airflow.sdk import Asset

from srm.config.loader import find_config, load_config
from srm.config.model import Config, FlowConfig
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.errors import ConfigError
from srm_airflow import folder
from srm_airflow.compat import CronTriggerTimetable
from srm_airflow.connections import unread_connection

SPARK_CONNECTION: Final = "srm_spark"
"""Airflow connection of type ``spark`` that says where Spark applications run."""

PREFIX_VARIABLE: Final = "SRM_DAG_PREFIX"
"""Environment variable: first part of all DAG ids, ``srm`` by default."""

SHORTEST_INTERVAL: Final = timedelta(seconds=10)
"""A task costs Airflow about a second of processor time: below this it does little else."""


def config_path() -> Path:
    """Return the properties file that all DAGs are built from."""
    return find_config(None).absolute()


def load() -> Config:
    """Read what DAGs are built from: the configuration without the values of connections."""
    path = config_path()
    config = load_config(path, connections=unread_connection)
    if not config.flows:
        raise ConfigError(
            f"{path} enables no replication flow, so the DAGs have nothing to do: "
            "add a line such as 'P->B.enabled = true'"
        )
    return config


def flow_configs(config: Config) -> tuple[FlowConfig, ...]:
    """Return the settings of the enabled flows, in a stable order."""
    return tuple(config.flow(flow) for flow in config.flows)


def flow_id(settings: FlowConfig) -> str:
    """Return the flow's name as a part of a task id, where ``>`` is not allowed."""
    return f"{settings.flow.source}_to_{settings.flow.target}"


def pairs(config: Config) -> tuple[tuple[str, str], ...]:
    """Return the pairs of clusters with an enabled flow between them, in the order of the file."""
    joined = {frozenset((flow.source, flow.target)) for flow in config.flows}
    return tuple(pair for pair in combinations(config.clusters, 2) if frozenset(pair) in joined)


def prefix() -> str:
    """Return the first part of the ids of all DAGs and assets of the configuration."""
    return os.environ.get(PREFIX_VARIABLE) or "srm"


def dag_id(name: str) -> str:
    return f"{prefix()}_{name}"


def checkpoints_asset(flow: Flow) -> Asset:
    """Return the asset that each emission of checkpoints of a flow updates."""
    topic = internal_topics.checkpoints(flow.source)
    # The address of an asset is unique: two configurations may have clusters of the same alias.
    host = flow.target if prefix() == "srm" else f"{prefix()}.{flow.target}"
    return Asset(name=f"{dag_id('checkpoints')} {flow}", uri=f"kafka://{host}/{topic}")


def schedule_of(intervals: Iterable[timedelta], shortest: timedelta = SHORTEST_INTERVAL) -> Any:
    """Return the shortest of the flows' intervals as a schedule, None (by hand) without any."""
    found = min(intervals, default=None)
    return None if found is None else max(found, shortest)


def spark_job(name: str) -> str:
    """Return the path or URL of a spark-submit entry point of this project.

    $SRM_SPARK_JOBS names the folder where Spark's driver has it elsewhere: a path, or a URL such as
    ``local:///opt/srm/spark_jobs`` or ``s3a://bucket/srm``.
    """
    jobs = os.environ.get("SRM_SPARK_JOBS") or folder("spark_jobs")
    return f"{str(jobs).rstrip('/')}/{name}.py"


def settled_cron(expression: str) -> CronTriggerTimetable:
    """Return a schedule whose first run is the next one: not one more load on a starting Airflow.

    Airflow would make up for a run that was due in the five minutes before, also where
    ``run_immediately`` is False.
    """
    return CronTriggerTimetable(expression, timezone="UTC", run_immediately=timedelta(seconds=1))


def job_arguments(config: Config, flows: Iterable[Flow] | None = None) -> list[str]:
    """Return the arguments that all Spark jobs take; all enabled flows unless some are named."""
    named = [part for flow in flows or config.flows for part in ("--flow", str(flow))]
    return ["--config", str(config_path()), *named]
