"""spark-submit by an Airflow connection, with the settings of the properties file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from srm.config.loader import load_config
from srm.spark.submission import DEPLOY_MODE, submission

_CONFIG: Final = "--config"


def submit_hook(conn_id: str, name: str, arguments: Sequence[str]) -> SparkSubmitHook:
    """Return the provider's hook for a program of ours.

    Args:
        conn_id: Airflow connection of type ``spark``: master, deploy mode, queue, namespace.
        name: the application's name.
        arguments: the program's; ``--config FILE`` among them names the properties file.

    Raises:
        ConfigError: the file cannot be used, or lacks what the master needs.
    """
    # Without the provider of Kubernetes the hook raises NameError for each k8s:// connection. It
    # needs that client only to delete the pod of a cleared job.
    vars(spark_submit).setdefault("kube_client", object())
    place = SparkSubmitHook(conn_id=conn_id)._connection  # noqa: SLF001 - no public question
    words = [str(word) for word in arguments]
    config = words[words.index(_CONFIG) + 1] if _CONFIG in words else None
    spark = {} if config is None else load_config(config).spark
    given = submission(spark, place["master"], place["deploy_mode"], config, words)
    return SparkSubmitHook(
        conf=dict(given.conf),
        conn_id=conn_id,
        files=given.files,
        archives=given.archives,
        name=name,
        application_args=list(given.arguments),
        deploy_mode=place["deploy_mode"] or spark.get(DEPLOY_MODE),
    )
