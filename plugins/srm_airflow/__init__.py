"""Airflow operators, triggers and DAGs of srm: thin adapters over the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from srm import __version__


def folder(name: Literal["dags", "spark_jobs"]) -> Path:
    """Return a folder of files: in a wheel below this package, in a checkout at its top."""
    packaged = Path(__file__).with_name(name)
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / name


def get_provider_info() -> dict[str, Any]:
    """Return the entry of the list of providers; Airflow reads it before it can be imported."""
    return {
        "package-name": "kafka-srm",
        "name": "srm",
        "description": "Streams replication manager for Apache Kafka",
        "versions": [__version__],
    }
