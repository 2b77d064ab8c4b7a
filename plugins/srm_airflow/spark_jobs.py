"""Spark jobs of bounded length: on a warm Spark Connect server where there is one."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from srm.spark import REMOTE
from srm_airflow.compat import AirflowException, AirflowNotFoundException
from srm_airflow.connections import given_to_processes
from srm_airflow.settings import SPARK_CONNECTION, config_path
from srm_airflow.spark_submit import submit_hook

if TYPE_CHECKING:
    from airflow.sdk import Context

logger = logging.getLogger(__name__)

CONNECT_CONNECTION: Final = "srm_spark_connect"
"""Airflow connection of type ``spark_connect`` that names a Spark Connect server; optional."""

_END_S: Final = 10.0


class SparkJobOperator(SparkSubmitOperator):
    """Run one of the project's Spark jobs and show what it prints.

    With a connection ``srm_spark_connect`` to a Spark Connect server the job is a child process
    that uses it, which takes seconds. Otherwise spark-submit starts an application by the
    connection ``srm_spark`` and the properties file (:mod:`srm_airflow.spark_submit`).
    """

    def __init__(self, *, conn_id: str = SPARK_CONNECTION, **kwargs: Any) -> None:
        super().__init__(conn_id=conn_id, **kwargs)
        self._process: subprocess.Popen[str] | None = None

    def execute(self, context: Context) -> None:
        """Run the job.

        Raises:
            AirflowException: the job has failed; its last lines are in the log.
        """
        with given_to_processes(config_path()):
            self._run(context)

    def _run(self, context: Context) -> None:
        remote = connect_url()
        if remote is None:
            # A job is repeated, never resumed; the provider resumes those on YARN by default.
            self.durable = False
            super().execute(context)
            return
        command = self._command()
        # In the environment, as the address may hold a token.
        environment = {**os.environ, REMOTE: remote}
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as self._process:
            for line in self._process.stdout or ():
                logger.info("%s", line.rstrip())
        code = self._process.returncode
        if code:
            raise AirflowException(f"{self.name} has failed with exit code {code}, see above")

    def _command(self) -> list[str]:
        """Return the command of the job where a Connect server has the workers."""
        return [sys.executable, str(self.application), *(self.application_args or ())]

    def _get_hook(self) -> SparkSubmitHook:
        return submit_hook(self._conn_id, self.name, self.application_args or ())

    def on_kill(self) -> None:
        """End the job."""
        if self._process is None:
            super().on_kill()
            return
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()


def connect_url() -> str | None:
    """Return the address of the Spark Connect server, None where no connection names one."""
    try:
        return str(SparkConnectHook(CONNECT_CONNECTION).get_connection_url())
    except AirflowNotFoundException:
        return None
