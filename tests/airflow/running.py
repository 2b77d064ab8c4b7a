"""The embedded Airflow with one of the DAG files, for a test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from srm_lab.demo.airflow_api import AirflowApi
from srm_lab.processes import end_processes, marked_processes
from srm_lab.stack.airflow import EmbeddedAirflow
from srm_lab.stack.process import HOME_MARK, free_port

PROJECT = Path(__file__).resolve().parents[2]


@contextmanager
def running_airflow(
    folder: Path, config: Path, dag_file: str, environ: Mapping[str, str]
) -> Iterator[tuple[EmbeddedAirflow, AirflowApi]]:
    """Start all components of an Airflow in a folder; leave nothing running.

    ``config``: srm's properties file. ``dag_file``: name of the file without its ending, or ``*``.
    """
    home, project = folder / "home", folder / "project"
    (project / "dags").mkdir(parents=True)
    for file in (PROJECT / "dags").glob(f"{dag_file}.py"):
        shutil.copy(file, project / "dags")
    marked = {HOME_MARK: str(home), **environ}
    airflow = EmbeddedAirflow(home, project, free_port(), config, marked)
    try:
        airflow.prepare()
        airflow.start()
        airflow.wait_ready(lambda _name: None)
        with AirflowApi(airflow.url, airflow.login) as api:
            yield airflow, api
    finally:
        airflow.stop()
        end_processes(marked_processes(HOME_MARK, str(home)), timeout=0)
