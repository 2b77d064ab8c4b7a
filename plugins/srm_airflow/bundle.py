"""DAG bundle of the installed package: one line of Airflow's configuration instead of files."""

from __future__ import annotations

from pathlib import Path

from airflow.dag_processing.bundles.base import BaseDagBundle

from srm_airflow import folder


class SrmDagBundle(BaseDagBundle):
    """The DAGs of the configuration in $SRM_CONFIG, as this version of srm declares them."""

    supports_versioning = False

    def get_current_version(self) -> None:
        """Return nothing: the version is the one of the package."""

    def refresh(self) -> None:
        """Do nothing: an upgrade of the package restarts Airflow."""

    @property
    def path(self) -> Path:
        """The folder of DAG files."""
        return folder("dags")
