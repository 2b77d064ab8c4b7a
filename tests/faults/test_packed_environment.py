"""A packed environment on a standalone cluster whose machines have no srm: docs/running.md."""

from __future__ import annotations

import logging
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
from tests.faults.application import START_S, Application, load
from tests.faults.standalone import standalone
from tests.waiting import eventually

from srm_lab.processes import slot_workers
from srm_lab.stack.kafka import KafkaBroker

logger = logging.getLogger(__name__)

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(2400)]

PROJECT = Path(__file__).parents[2]
OF_A_SLOT = (
    *("aiokafka", "async-timeout", "confluent-kafka", "cramjam", "crc32c"),
    *("numpy", "psutil", "pydantic", "rich"),
)
"""Packages that a slot imports. PySpark is the cluster's."""


def pack(folder: Path) -> Path:
    """Pack an environment as docs/running.md does, without what only drivers import."""
    environment, archive = folder / "environment", folder / "environment.tar.gz"
    run(sys.executable, "-m", "venv", "--copies", "--without-pip", environment)
    install = [Path(sys.executable).with_name("uv"), "pip", "install", "--quiet"]
    install += ["--python", environment / "bin/python"]
    run(*install, "--constraint", PROJECT / "requirements.txt", *OF_A_SLOT)
    run(*install, "--no-deps", PROJECT)
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(environment, arcname=".")
    logger.info("the archive has %.0f MB", archive.stat().st_size / 1e6)
    # Slots that found this folder would not show that theirs was unpacked.
    environment.rename(folder / "elsewhere")
    return archive


def test_the_documentation_installs_the_same_packages() -> None:
    assert " ".join(OF_A_SLOT) in (PROJECT / "docs" / "running.md").read_text()


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr


def library(slot: psutil.Process) -> str:
    """Return the path of srm's own code in a process: its native library."""
    return next((m.path for m in slot.memory_maps() if m.path.endswith("libsrm.so")), "")


def test_slots_copy_with_the_environment_that_spark_unpacks(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    archive = pack(tmp_path)
    application = Application(clusters, tmp_path, flows=1, slots=2)
    with application.config.open("a") as file:
        file.write(f"spark.archives = {archive}#environment\n")
        file.write("spark.pyspark.python = ./environment/bin/python\n")

    with (
        standalone(tmp_path) as cluster,
        load(application),
        application.running("--master", cluster.master),
    ):
        eventually(lambda: "slots 2/2" in application.view(), "both slots report", 2 * START_S)
        application.grows(500)
        slots = [slot for executor in cluster.executors() for slot in slot_workers(executor)]
        commands = {slot.cmdline()[0] for slot in slots}
        libraries = [Path(library(slot)) for slot in slots]

    assert commands == {"./environment/bin/python"}
    assert len(libraries) == 2
    assert all(path.is_relative_to(tmp_path / "work") for path in libraries), libraries
