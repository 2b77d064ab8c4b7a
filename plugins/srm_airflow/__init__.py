"""Airflow operators, triggers and DAGs of srm: thin adapters over the engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from srm import __version__

if TYPE_CHECKING:
    from airflow.sdk import DAG

_LOGIN_FIELDS: Final = (
    "bootstrap.servers",
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
)
"""Properties of librdkafka with a field of their own in the form of a connection."""


def build_dags(config_path: str | Path, prefix: str = "srm") -> dict[str, DAG]:
    """Declare the DAGs of one configuration, in a DAG file of the user.

    Airflow registers them; the file need not assign them. Airflow names $SRM_CONFIG's DAGs
    ``srm_...``, so further configurations take prefixes of their own. ``config_path``: srm's
    properties file, readable where $SRM_CONFIG would have to be. ``prefix``: of the DAG ids and
    assets. Returns the DAGs by id. ConfigError: the file is missing, cannot be used, or enables no
    flow.
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
        "connection-types": [
            {
                "connection-type": "srm_kafka",
                "hook-class-name": "srm_airflow.clusters.KafkaClusterHook",
                "hook-name": "Kafka cluster of srm",
                "ui-field-behaviour": {
                    "hidden-fields": ["schema", "login", "password", "port", "host"],
                    "relabeling": {"extra": "Further properties of librdkafka"},
                },
                "conn-fields": {name: _field(name) for name in _LOGIN_FIELDS},
            }
        ],
        "extra-links": ["srm_airflow.additions.RunLink"],
        "cli": ["srm_airflow.additions.commands"],
    }


def _field(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": ["string", "null"]}
    if name.endswith(".password"):
        schema["format"] = "password"
    return {"label": name, "schema": schema}
