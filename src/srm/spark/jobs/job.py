"""Shared parts of the spark-submit entry points: options, one session, a JSON line per flow."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from srm import logs, telemetry
from srm.config.loader import load_config
from srm.config.model import Config
from srm.domain.names.topics import Flow
from srm.domain.text.documents import encode
from srm.errors import SrmError, UnavailableError
from srm.spark.session import file_settings, spark_session

_SPANS: Final = {
    "srm-checkpoints": "checkpoints.emit",
    "srm-group-sync": "groups.sync",
    "srm-metrics": "metrics.aggregate",
    "srm-verification": "verify",
}
"""Span names by job: the same as those of the corresponding commands."""


@dataclass(frozen=True)
class JobResult:
    """Result of one flow: a summary to print, and its failure if there was one."""

    summary: object
    failure: SrmError | None = None


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all jobs have."""
    options = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--config", help="properties file; else $SRM_CONFIG, ./srm.properties")
    options.add_argument(
        "--flow", action="append", type=Flow.parse, metavar="A->B", help="default: all enabled"
    )
    options.add_argument(
        "--remote",
        metavar="sc://HOST:PORT",
        help="Spark Connect server, where spark-submit does not start this; else $SPARK_REMOTE",
    )
    return options


def group_failure(errors: Mapping[str, str]) -> SrmError | None:
    """Return the error of a summary in which groups failed: worth another attempt."""
    if not errors:
        return None
    first = min(errors)
    return UnavailableError(f"{len(errors)} groups failed, first {first!r}: {errors[first]}")


def run_job(
    name: str,
    options: argparse.Namespace,
    work: Callable[[SparkSession, Config, Flow], JobResult],
) -> int:
    """Run a job for each flow, printing JSON lines; return the first failure's exit code."""
    logs.set_up(srm=logging.INFO)
    failures: list[SrmError] = []
    try:
        config = load_config(options.config)
        conf = file_settings(config.spark)
        with spark_session(name, conf=conf, remote=options.remote) as spark:
            for flow in options.flow or config.flows:
                failures += _run_flow(spark, config, flow, work, _SPANS.get(name, name))
    except SrmError as error:
        failures.append(error)
    for failure in failures:
        sys.stderr.write(f"srm: {failure}\n")
    return failures[0].exit_code if failures else 0


def _run_flow(
    spark: SparkSession,
    config: Config,
    flow: Flow,
    work: Callable[[SparkSession, Config, Flow], JobResult],
    span: str,
) -> list[SrmError]:
    try:
        with telemetry.span(span, flow=str(flow), engine="spark") as opened:
            result = work(spark, config, flow)
            opened.result(result.summary)
            opened.note(failure=result.failure)
    except SrmError as error:
        return [error]
    sys.stdout.write(encode(result.summary).decode() + "\n")
    sys.stdout.flush()
    return [] if result.failure is None else [result.failure]
