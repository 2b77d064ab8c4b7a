"""A migrated Airflow database in no time: migrated once per version, copied ever after."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import Final

from srm.disk import disk_errors, write_atomically
from srm.errors import StackError
from srm_lab.stack.jars import cache_folder
from srm_lab.stack.process import telling_line

logger = logging.getLogger(__name__)

_MIGRATE_SECONDS: Final = 300.0
_CONNECTION: Final = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"


def ensure_database(database: Path, environ: Mapping[str, str]) -> None:
    """Make sure that the SQLite file exists and has the schema of the installed Airflow.

    Raises:
        StackError: the migration fails or the file cannot be written.
    """
    version = schema_version()
    stamp = database.with_suffix(".version")
    if database.exists():
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != version:
            _migrate(database, environ)
    else:
        write_atomically(database, _template(version, environ).read_bytes())
    write_atomically(stamp, version.encode())


def schema_version() -> str:
    """Return a text that changes whenever a package changes that may change the schema."""
    packages = sorted(
        f"{distribution.name}=={distribution.version}"
        for distribution in metadata.distributions()
        if distribution.name.lower().startswith(("apache-airflow", "sqlalchemy", "alembic"))
    )
    digest = hashlib.sha256("\n".join(packages).encode()).hexdigest()[:12]
    return f"{metadata.version('apache-airflow-core')}-{digest}"


def _template(version: str, environ: Mapping[str, str]) -> Path:
    template = cache_folder() / f"airflow-{version}.db"
    if template.exists():
        return template
    with (
        disk_errors(template),
        _folder_for_building() as folder,
    ):
        database = Path(folder) / "airflow.db"
        _migrate(database, {**environ, "AIRFLOW_HOME": folder})
        whole = Path(folder) / "whole.db"
        # A backup, not a copy: what is still in SQLite's write-ahead log belongs to it.
        with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(whole)) as copy:
            source.backup(copy)
        write_atomically(template, whole.read_bytes())
    return template


def _folder_for_building() -> tempfile.TemporaryDirectory[str]:
    cache_folder().mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".airflow-")


def _migrate(database: Path, environ: Mapping[str, str]) -> None:
    logger.info("migrating %s", database)
    result = subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"],
        env={**environ, _CONNECTION: f"sqlite:///{database}"},
        cwd=database.parent,
        capture_output=True,
        text=True,
        timeout=_MIGRATE_SECONDS,
        check=False,
    )
    if result.returncode != 0:
        lines = [line.strip() for line in (result.stdout + result.stderr).splitlines() if line]
        raise StackError(f"airflow db migrate failed on {database}: {telling_line(lines)}")
