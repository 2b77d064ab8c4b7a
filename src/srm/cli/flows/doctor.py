"""``srm doctor``: whether this host and both clusters have what srm needs."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

import confluent_kafka

from srm import __version__
from srm.cli.console import ConfigOption, JsonOption, emit
from srm.cli.flows.config import check_connections
from srm.cli.flows.findings import Check, Checks, check_clusters, render
from srm.config.loader import build_config, read_settings
from srm.config.model import Config
from srm.domain.text.amount import amount
from srm.errors import SrmError
from srm.replication.native.library import native_library

_OPTIONAL: Final = {
    "pyspark": "srm replicate and srm verify need it",
    "apache-airflow": "the DAGs need it",
    "fastapi": "srm-service needs it",
}
_JAVA_S: Final = 3.0
_MINIMUM_JAVA: Final = 17


def doctor(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Check this host, the configuration and each cluster; nothing is written.

    One line a check: versions, Java, native library, configuration, then for each cluster whether
    it answers, its release, clock, transactions and srm's rights on the topics of its flows.

    Exit code 0 only without problems, else that of the first one: 6 for a cluster that is
    unavailable, 9 for a missing right.
    """
    checks = Checks()
    checks.extend(_host())
    try:
        resolved = build_config(read_settings(config))
        check_connections(resolved)
    except SrmError as error:
        checks.fail("configuration", error)
    else:
        checks.append(_configuration(resolved))
        check_clusters(resolved, checks)
    emit(list(checks), as_json, lambda console: render(console, checks))
    checks.raise_problems()


def _host() -> Iterator[Check]:
    librdkafka = confluent_kafka.libversion()[0]
    text = f"srm {__version__}, Python {platform.python_version()}, librdkafka {librdkafka}"
    yield Check("versions", "ok", text)
    for package, purpose in _OPTIONAL.items():
        try:
            yield Check(package, "ok", metadata.version(package))
        except metadata.PackageNotFoundError:
            yield Check(package, "ok", f"not installed; {purpose}")
    yield _java()
    if native_library() is None:
        text = "not usable: the replicator copies more slowly"
        yield Check("native library", "warning", text, "install srm again where cc is available")
    else:
        yield Check("native library", "ok", "loaded")


def _java() -> Check:
    """Return the version of the Java runtime, which Spark needs."""
    home, action = os.environ.get("JAVA_HOME"), "install a JDK 17 or newer, or set JAVA_HOME"
    program = str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_JAVA_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        text = f"{program} does not run, only Spark needs it: {error}"
        return Check("java", "warning", text, action)
    found = re.search(r'version "(\d+)', done.stderr + done.stdout)
    if found is None or int(found[1]) < _MINIMUM_JAVA:
        return Check("java", "warning", f"{program} is too old for Spark", action)
    return Check("java", "ok", f"{found[1]} ({program})")


def _configuration(config: Config) -> Check:
    if config.warnings:
        text = f"{config.path}: {amount(len(config.warnings), 'warning')}"
        return Check("configuration", "warning", text, "srm config check")
    text = f"{config.path}: {', '.join(config.clusters)}; {amount(len(config.flows), 'flow')}"
    return Check("configuration", "ok", text)
