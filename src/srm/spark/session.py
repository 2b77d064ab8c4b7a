"""One way to start Spark, under spark-submit and without it: a session, or only its context.

A session may also be one of a Spark Connect server, which is warm: it has its JVM and workers.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import current_thread, main_thread
from urllib.parse import urlsplit

import psutil
from py4j.protocol import INPUT_CONVERTER, Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

from srm.errors import StackError, UnavailableError, UsageError
from srm.spark import REMOTE, WORKER_DAEMON
from srm.spark.submission import MASTER, settings_for

logger = logging.getLogger(__name__)

DEFAULT_MASTER = "local[2]"
_MASTERS = re.compile(r"local(\[(\d+|\*)(,\s*\d+)?\])?|local-cluster\[.+\]|yarn|(spark|k8s)://.+")

# Set by spark-submit for the Python program it starts.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"

# PySpark's functions ask the environment which kind of columns to make.
_IS_REMOTE = "SPARK_CONNECT_MODE_ENABLED"

_CONNECT_PORT = 15002
_CONNECT_TIMEOUT_S = 10.0

_SQL_SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "4"}

_SETTINGS = {
    **_SQL_SETTINGS,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.daemon.module": WORKER_DAEMON,
}

# On one machine no other host has to reach the driver, and an executor lives as long as it does.
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.heartbeatInterval": "60s",
}

# Jobs that place Python functions broadcast and shuffle nothing, so nothing needs cleaning; the
# cleaner thread wakes ten times a second.
_CLEANS = "spark.cleaner.referenceTracking"

# Settings of a JVM that we start ourselves: it only schedules, records stay in Python workers.
_JVM_SETTINGS = {
    "spark.driver.memory": "512m",
    # The quick compiler and the simple collector: a third less CPU to start, less when idle. What
    # jps and jstat look at is sampled twenty times a second.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData "
    "-Dlog4j2.configurationFile=" + Path(__file__).with_name("log4j2.properties").as_uri(),
}


def submit_options() -> dict[str, str] | None:
    """Return what spark-submit, if it started this program, was given; its JVM knows."""
    if _SUBMITTED not in os.environ:
        return None
    SparkContext._ensure_initialized()  # noqa: SLF001 - connects, and starts no application
    return dict(SparkConf().getAll())


def settings(
    master: str | None, conf: Mapping[str, str], given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the settings for a new session; ``conf`` wins, then those ``given`` spark-submit."""
    fallback = master or conf.get("spark.master", DEFAULT_MASTER)
    master = (given or {}).get("spark.master", fallback)
    chosen = dict(_SETTINGS)
    if master.startswith("local"):
        chosen |= _LOCAL_SETTINGS
    if given is None:
        chosen |= _JVM_SETTINGS | {"spark.master": master}
    return {key: value for key, value in chosen.items() if key not in (given or {})} | dict(conf)


def file_settings(spark: Mapping[str, str], master: str | None = None) -> dict[str, str]:
    """Return those settings ``spark.*`` that neither spark-submit nor the caller gives."""
    given = submit_options() or {}
    place = given.get(MASTER) or master or spark.get(MASTER, DEFAULT_MASTER)
    if not _MASTERS.fullmatch(place):
        raise UsageError(
            f"Spark has no master {place!r}: use {DEFAULT_MASTER}, spark://HOST:PORT, yarn or k8s://URL"
        )
    decided = {*given, *((MASTER,) if master else ())}
    return {key: value for key, value in settings_for(spark, place).items() if key not in decided}


@contextmanager
def spark_session(
    name: str,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    remote: str | None = None,
) -> Iterator[SparkSession]:
    """Give a Spark session and stop it at the end; one that is active already is used and kept.

    ``master`` and ``remote``, a Spark Connect server ``sc://host:port``, by default $SPARK_REMOTE,
    are ignored under spark-submit. StackError: the JVM does not start.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    remote = remote or os.environ.get(REMOTE)
    if remote and _SUBMITTED not in os.environ:
        with _remote_session(name, remote, conf or {}) as session:
            yield session
        return
    with _start_errors(name):
        builder = SparkSession.builder.appName(name)
        for key, value in _choose(master, conf).items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
    _greet(name, session.sparkContext)
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def _remote_session(name: str, remote: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    server = _answering(remote)
    try:
        builder = SparkSession.builder.appName(name).remote(remote)
        for key, value in (_SQL_SETTINGS | dict(conf)).items():
            if key.startswith("spark.sql."):  # the others are the server's
                builder = builder.config(key, value)
        try:
            session = builder.getOrCreate()
        except PySparkException as error:
            raise UnavailableError(f"Spark Connect server {server}: {error}") from error
        logger.info("%s on Spark Connect server %s", name, server)
        try:
            yield session
        finally:
            session.stop()
    finally:
        os.environ.pop(_IS_REMOTE, None)


def _answering(remote: str) -> str:
    """Return host and port of a Connect server that is up: Spark's client would try ten minutes."""
    try:
        parts = urlsplit(remote)
        address = parts.hostname, parts.port or _CONNECT_PORT
    except ValueError:
        address = None, 0
    if not remote.startswith("sc://") or not address[0]:
        raise UsageError("a Spark Connect server is named sc://host:port")
    server = f"{address[0]}:{address[1]}"
    try:
        socket.create_connection((address[0], address[1]), _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise UnavailableError(f"Spark Connect server {server} does not answer: {error}") from error
    return server


@contextmanager
def spark_context(name: str, conf: Mapping[str, str] | None = None) -> Iterator[SparkContext]:
    """Give Spark without SQL, in half the CPU time (docs/decisions/0002), and stop it."""
    with _start_errors(name):
        settled = SparkConf().setAppName(name).setAll(_choose(None, conf).items())
        settled.setIfMissing(_CLEANS, "false")
        context = SparkContext.getOrCreate(settled)
    _greet(name, context)
    try:
        yield context
    finally:
        context.stop()


def _choose(master: str | None, conf: Mapping[str, str] | None) -> dict[str, str]:
    # Spark starts workers as the first `python3` on PATH, which need not have our packages.
    if python := (conf or {}).get("spark.pyspark.python"):
        os.environ["PYSPARK_PYTHON"] = python  # as spark-submit does
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # To recognise values of NumPy, which are never passed to the JVM here, PySpark imports pandas
    # with the first call of all: 0.5 s and 40 MB.
    INPUT_CONVERTER[:] = [
        converter
        for converter in INPUT_CONVERTER
        if not isinstance(converter, NumpyScalarConverter | NumpyArrayConverter)
    ]
    chosen = settings(master, conf or {}, submit_options())
    if chosen.get(MASTER, "").startswith("local"):
        # Java looks up the name of this host, which need not have an address.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return chosen


@contextmanager
def _java_ends_with_us() -> Iterator[None]:
    """End the Java that starts with Ctrl-C: it stays where PySpark no longer waits for it."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or current_thread() is not main_thread():
        yield
        return

    def end(*_: object) -> None:
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                child.kill()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is end:  # else PySpark's, of the running Spark
            signal.signal(signal.SIGINT, before)


@contextmanager
def _start_errors(name: str) -> Iterator[None]:
    try:
        with _java_ends_with_us():
            yield
    except (PySparkException, Py4JError, OSError) as error:
        raise StackError(
            f"Spark application {name!r} does not start: {error}; is a JDK 17 or newer on PATH?"
        ) from error


def _greet(name: str, context: SparkContext) -> None:
    context.setLogLevel("WARN")
    logger.info("Spark application %s on %s", name, context.master)
