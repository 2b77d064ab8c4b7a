"""The Spark application: a Python worker is killed, then the driver; SIGTERM ends all of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
from tests.faults.application import START_S, Application, load
from tests.processes import slot_workers
from tests.waiting import eventually

from srm.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(400)]


def test_workers_and_driver_killed_in_mid_copy_lose_and_repeat_nothing(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    application = Application(clusters, tmp_path)

    with load(application):
        with application.running() as driver:
            application.grows(500)
            victims = slot_workers(driver)
            for victim in victims:
                victim.kill()
            application.grows(2000)
            heirs = slot_workers(driver)
            everything = [driver, *driver.children(recursive=True)]
            driver.terminate()
            code = driver.wait(30)
            _, left = psutil.wait_procs(everything, timeout=10)
        assert victims, "no Python worker found"
        assert not {p.pid for p in victims} & {p.pid for p in heirs}
        assert (code, left) == (0, []), "SIGTERM ends everything, cleanly"

        with application.running():
            application.grows(2000)
            # Leaving the block kills the driver, and the JVM with it, in mid copy.
    with application.running():
        eventually(application.is_equal, "source and target are equal", START_S)
