"""Spark sessions, the replicator application, and jobs spread over tasks."""

WORKER_DAEMON = "srm.spark.worker_daemon"
"""Module of the process that Spark forks Python workers from."""

REMOTE = "SPARK_REMOTE"
"""Environment variable of Spark's that names a Spark Connect server."""
