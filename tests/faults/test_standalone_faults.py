"""The application on a Spark standalone cluster: executors and workers are lost in mid copy."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from tests.faults.application import START_S, Application, load
from tests.faults.standalone import Standalone, standalone
from tests.waiting import eventually

from srm_lab.processes import slot_workers
from srm_lab.stack.kafka import KafkaBroker

logger = logging.getLogger(__name__)

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(2400)]

PAUSE_S = 300.0  # on a busy machine; a quiet one needs about 5
END_S = 180.0  # the same, where a quiet one needs about 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    with standalone(tmp_path) as running:
        yield running


def test_a_lost_executor_and_a_lost_worker_cost_seconds_and_no_record(
    clusters: Mapping[str, KafkaBroker],
    cluster: Standalone,
    tmp_path: Path,
) -> None:
    application = Application(clusters, tmp_path, flows=1, slots=2)

    def goes_on(after: str, workers: list[psutil.Process]) -> None:
        _, alive = psutil.wait_procs(workers, timeout=END_S)
        assert alive == [], "a slot outlived its executor"
        before = application.ends()
        took = eventually(
            lambda: all(now > then for now, then in zip(application.ends(), before, strict=True)),
            "every partition goes on",
            PAUSE_S,
        )
        logger.info("every partition goes on %.1f s after %s", took, after)

    def both_slots_report() -> bool:
        """The view alone may not have noticed a loss yet."""
        running = sum(len(slot_workers(executor)) for executor in cluster.executors())
        return running == 2 and "slots 2/2" in application.view()

    with load(application), application.running("--master", cluster.master) as driver:
        eventually(both_slots_report, "both slots report", 2 * START_S)
        spread = [len(slot_workers(executor)) for executor in cluster.executors()]

        first = cluster.executors()[0]
        workers = slot_workers(first)
        first.kill()
        goes_on("the loss of an executor", workers)
        eventually(both_slots_report, "both slots are back", 2 * START_S)

        workers = slot_workers(psutil.Process(cluster.workers[1].pid))
        cluster.workers[1].kill()
        goes_on("the loss of a worker", workers)
        eventually(both_slots_report, "both slots are back", 2 * START_S)
        application.grows(500)

        everything = [driver, *driver.children(recursive=True), *cluster.executors()]
        driver.terminate()
        code = driver.wait(END_S)
        _, left = psutil.wait_procs(everything, timeout=END_S)
    with application.running("--until-caught-up") as last:
        assert last.wait(2 * START_S) == 0

    assert spread == [1, 1]
    assert (code, left) == (0, []), "SIGTERM ends everything, cleanly"
    application.assert_equal()
