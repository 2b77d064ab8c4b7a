"""Spark from the pip packages: whether its parts fit, and how its Java starts quickly."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from srm.errors import StackError
from srm_lab.stack.java import (
    QUICK_START,
    OnBegin,
    archive_options,
    class_archive,
    find_java,
    write_archive,
)
from srm_lab.stack.process import error_line

_RUN_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class SparkInstallation:
    """Spark as it is installed: its version and SPARK_HOME."""

    version: str
    home: Path


def check_spark() -> SparkInstallation:
    """Return the installed Spark.

    ``pyspark`` and ``pyspark-client`` install into the same folder, and only equal versions hold
    the same files: with two different ones Spark would be a mixture of both. StackError: a package
    is missing, or the two versions differ.
    """
    pyspark = _version("pyspark")
    client = _version("pyspark-client")
    if pyspark != client:
        raise StackError(
            f"pyspark is {pyspark} but pyspark-client {client}, and they share a folder: "
            "install both in the version of requirements.txt"
        )
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise StackError("pyspark is damaged: install requirements.txt again")
    home = Path(found.origin).parent
    if not (home / "bin" / "spark-submit").is_file():
        raise StackError(f"{home} has no bin/spark-submit: install requirements.txt again")
    return SparkInstallation(pyspark, home)


def archive_spark_classes(on_begin: OnBegin | None = None) -> None:
    """Have the archive written with which Spark's Java starts quickly; 10 s the first time.

    ``on_begin``: called if it has to be written. StackError: Spark or Java is missing.
    """
    spark = check_spark()

    def run(folder: Path, option: str) -> None:
        _run_all_kinds(spark, folder, option)

    write_archive(_archive(spark), run, on_begin)


def quick_start() -> tuple[str, ...]:
    """Return the options of Java for drivers that run for minutes.

    StackError: Spark or Java is missing.
    """
    return (*QUICK_START, *archive_options(_archive(check_spark())))


def _archive(spark: SparkInstallation) -> Path:
    return class_archive(f"spark-{spark.version}", find_java(), spark.home / "jars")


def _run_all_kinds(spark: SparkInstallation, folder: Path, option: str) -> None:
    program = Path(__file__).with_name("spark_classes.py")
    environ = {
        **os.environ,
        "SPARK_HOME": str(spark.home),
        "SPARK_SUBMIT_OPTS": shlex.join((*QUICK_START, option)),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [spark.home / "bin" / "spark-submit", "--master", "local[2]", program],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=_RUN_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise StackError(f"Spark does not run: {error_line(done.stderr.splitlines())}")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        raise StackError(f"{package} is not installed: install requirements.txt") from None
