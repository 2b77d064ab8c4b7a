"""DAGs of the installed package: a bundle, and those of further configurations."""

from __future__ import annotations

import os
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from airflow.dag_processing.bundles.base import BaseDagBundle
from airflow.sdk import DAG, get_parsing_context

from srm.config.loader import CONFIG_VARIABLE
from srm.errors import ConfigError
from srm_airflow import folder
from srm_airflow.settings import PREFIX_VARIABLE


class SrmDagBundle(BaseDagBundle):
    """The DAGs of the configuration in $SRM_CONFIG, as this version of srm declares them."""

    supports_versioning = False

    def get_current_version(self) -> None:
        """Return nothing: the version is the one of the package."""

    def refresh(self) -> None:
        """Do nothing: an upgrade of the package restarts Airflow."""

    @property
    def path(self) -> Path:
        return folder("dags")


def build(config_path: Path, prefix: str) -> dict[str, DAG]:
    """Return the DAGs of one configuration by id; as `srm_airflow.build_dags`."""
    before = {name: os.environ.get(name) for name in (CONFIG_VARIABLE, PREFIX_VARIABLE)}
    os.environ.update({CONFIG_VARIABLE: str(config_path), PREFIX_VARIABLE: prefix})
    made: dict[str, DAG] = {}
    try:
        for file in sorted(folder("dags").glob("*.py")):
            made |= {dag.dag_id: dag for dag in _declare(file, prefix)}
    finally:
        # The process of a task keeps them: what the task calls reads the same file.
        if get_parsing_context().dag_id not in made:
            _restore(before)
    return made


def _declare(file: Path, prefix: str) -> tuple[DAG, ...]:
    spec = spec_from_file_location(f"{prefix}.{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file} cannot be imported: install srm again")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return tuple(module.DAGS)


def _restore(before: dict[str, str | None]) -> None:
    for name, value in before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
