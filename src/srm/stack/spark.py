"""Checks that Spark from the pip packages is whole: the parts that have to fit do fit."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from srm.errors import StackError


@dataclass(frozen=True, slots=True)
class SparkInstallation:
    """Spark as it is installed: its version and SPARK_HOME."""

    version: str
    home: Path


def check_spark() -> SparkInstallation:
    """Return the installed Spark.

    ``pyspark`` and ``pyspark-client`` install into the same folder, and only equal versions hold
    the same files: with two different ones Spark would be a mixture of both.

    Raises:
        StackError: a package is missing, or the two versions differ.
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


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        raise StackError(f"{package} is not installed: install requirements.txt") from None
