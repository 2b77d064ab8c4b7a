"""Airflow operators, triggers and DAGs of srm: thin adapters over the engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from srm import __version__

if TYPE_CHECKING:
    from airflow.sdk import DAG


def build_dags(config_path: str | Path, prefix: str = "srm") -> dict[str, DAG]:
    """Declare the DAGs of one configuration, in a DAG file of the user.

    Airflow registers them; the file need not assign them. Airflow names $SRM_CONFIG's DAGs
    ``srm_...``, so further configurations take prefixes of their own.

    Args:
        config_path: srm's properties file, readable where $SRM_CONFIG would have to be.
        prefix: of the DAG ids and assets.

    Returns:
        The DAGs by id.

    Raises:
        ConfigError: the file is missing, cannot be used, or enables no flow.
    """
    from srm_airflow.bundle import build  # noqa: PLC0415 - the list of providers imports this

    return build(Path(config_path).absolute(), prefix)


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
