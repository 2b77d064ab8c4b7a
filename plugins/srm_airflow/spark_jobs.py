"""Spark applications by an Airflow connection; jobs may use a warm Spark Connect server."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from srm.config.loader import load_config
from srm.config.properties import CONNECTIONS_VARIABLE
from srm.errors import ConfigError
from srm.spark import REMOTE
from srm.spark.submission import submission
from srm_airflow.compat import AirflowException, AirflowFailException, AirflowNotFoundException
from srm_airflow.connections import given_to_processes
from srm_airflow.settings import SPARK_CONNECTION, config_path

if TYPE_CHECKING:
    from airflow.sdk import Context

logger = logging.getLogger(__name__)

CONNECT_CONNECTION: Final = "srm_spark_connect"
"""Airflow connection of type ``spark_connect`` that names a Spark Connect server; optional."""

_END_S: Final = 10.0
_CONFIG: Final = "--config"


class SparkJobOperator(SparkSubmitOperator):
    """Run one of the project's Spark jobs and show what it prints.

    With a connection ``srm_spark_connect`` to a Spark Connect server the job is a child process
    that uses it, which takes seconds. Otherwise spark-submit starts an application by the
    connection ``srm_spark`` and the properties file (:func:`submit_hook`).
    """

    def __init__(self, *, conn_id: str = SPARK_CONNECTION, **kwargs: Any) -> None:
        super().__init__(conn_id=conn_id, **kwargs)
        self._process: subprocess.Popen[str] | None = None

    def execute(self, context: Context) -> None:
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
        return [sys.executable, str(self.application), *(self.application_args or ())]

    def _get_hook(self) -> SparkSubmitHook:
        return submit_hook(self._conn_id, self.name, self.application_args or ())

    def on_kill(self) -> None:
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


def submit_hook(
    conn_id: str, name: str, arguments: Sequence[str], *, outlives_task: bool = False
) -> SparkSubmitHook:
    """Return the provider's hook for a program of ours.

    ``conn_id``: Airflow connection of type ``spark``: master, deploy mode, queue, namespace.
    ``arguments``: the program's; ``--config FILE`` among them names the properties file.
    ``outlives_task``: the driver must not end with the pod of its task. AirflowFailException: it
    would; with what to do instead. ConfigError: the file cannot be used, lacks what the master
    needs, or its driver cannot log in.
    """
    # Without the provider of Kubernetes the hook raises NameError for each k8s:// connection. It
    # needs that client only to delete the pod of a cleared job.
    vars(spark_submit).setdefault("kube_client", object())
    place = SparkSubmitHook(conn_id=conn_id)._connection  # noqa: SLF001 - no public question
    words = [str(word) for word in arguments]
    config = words[words.index(_CONFIG) + 1] if _CONFIG in words else None
    spark = {} if config is None else load_config(config).spark
    given = submission(spark, place["master"], place["deploy_mode"], config, words)
    if outlives_task and not given.in_cluster and os.environ.get("AIRFLOW_IS_K8S_EXECUTOR_POD"):
        raise AirflowFailException(
            "the replicator would end with the pod of this task: set the deploy mode of the Spark "
            "connection to cluster, or run this task with another executor"
        )
    if given.in_cluster and CONNECTIONS_VARIABLE in os.environ:
        raise ConfigError(
            "a driver in cluster mode cannot read connections of Airflow",
            "give it logins by ${file:PATH:KEY} or ${directory:PATH:FILE} in the properties file",
        )
    return SparkSubmitHook(
        conf=dict(given.conf),
        conn_id=conn_id,
        files=given.files,
        archives=given.archives,
        name=name,
        application_args=list(given.arguments),
        deploy_mode=given.deploy_mode,
    )
