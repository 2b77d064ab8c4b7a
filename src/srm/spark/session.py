"""One way to get a Spark session, under spark-submit and without it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from srm.errors import StackError

logger = logging.getLogger(__name__)

DEFAULT_MASTER = "local[2]"

# Both are set by spark-submit for the Python program it starts.
_SUBMITTED = ("PYSPARK_GATEWAY_PORT", "SPARK_CONNECT_MODE_ENABLED")

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
}

# A local session's JVM only schedules: records stay in the Python workers.
_LOCAL_SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def submitted() -> bool:
    """Whether spark-submit started this program, so that master and memory come from there."""
    return any(os.environ.get(name) for name in _SUBMITTED)


def settings(master: str | None, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a new session; ``conf`` wins over ours.

    Args:
        master: the master to set, None where spark-submit has set it.
        conf: settings of the caller.
    """
    chosen = dict(_SETTINGS)
    if master is not None and master.startswith("local"):
        chosen |= _LOCAL_SETTINGS
        log_settings = Path(__file__).with_name("log4j2.properties").as_uri()
        chosen["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={log_settings}"
    if master is not None:
        chosen["spark.master"] = master
    return chosen | dict(conf)


@contextmanager
def spark_session(
    name: str, master: str | None = None, conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Give a Spark session and stop it at the end; one that is active already is used and kept.

    Args:
        name: application name, as people see it in Spark's UI.
        master: Spark master; ignored under spark-submit, ``local[2]`` where nothing is said.
        conf: further Spark settings.

    Raises:
        StackError: the JVM does not start.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    # Spark starts workers as the first `python3` on PATH, which need not have our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = settings(None if submitted() else master or DEFAULT_MASTER, conf or {})
    builder = SparkSession.builder.appName(name)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise StackError(
            f"Spark session {name!r} does not start: {error}; is a JDK 17 or newer on PATH?"
        ) from error
    session.sparkContext.setLogLevel("WARN")
    logger.info("Spark session %s on %s", name, session.sparkContext.master)
    try:
        yield session
    finally:
        session.stop()
