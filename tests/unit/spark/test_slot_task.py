"""What runs in a Spark task ends when Spark hangs up, however often it does."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import threading
from pathlib import Path

from tests.waiting import DEADLINE_S

from srm.config.model import ClusterClients
from srm.replication.copy.slot import SlotSpec
from srm.spark.slot import SlotTask
from srm_lab.testing.flows import P_TO_B, flow_config

LAST_WORDS = "SRM_TEST_LAST_WORDS"


def hung_up_twice(spec: SlotSpec, stop: threading.Event) -> None:
    """Be told to stop, and again in the middle of being told."""
    del spec
    notify = stop._cond.notify_all  # type: ignore[attr-defined]

    def again() -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        notify()

    stop._cond.notify_all = again  # type: ignore[attr-defined]
    os.kill(os.getpid(), signal.SIGHUP)
    stop.wait()
    Path(os.environ[LAST_WORDS]).write_text("written")


def _task(last_words: str) -> None:
    os.environ[LAST_WORDS] = last_words
    nothing = ClusterClients.alike({})
    spec = SlotSpec(flow_config(P_TO_B), "0", nothing, nothing)
    SlotTask(spec, logging.WARNING, run=hung_up_twice)([0])


def test_a_second_hang_up_while_the_first_is_served_blocks_nothing(tmp_path: Path) -> None:
    last_words = tmp_path / "positions"
    process = multiprocessing.get_context("spawn").Process(target=_task, args=(str(last_words),))
    process.start()
    try:
        process.join(DEADLINE_S)
        assert process.exitcode == 0
        assert last_words.exists()
    finally:
        process.kill()


def saying(spec: SlotSpec, stop: threading.Event) -> None:
    """Log a line, and write down what came of it."""
    del stop
    [handler] = logging.getLogger().handlers
    record = logging.LogRecord("srm", logging.INFO, "", 0, "copied", (), None)
    Path(os.environ[LAST_WORDS]).write_text(handler.format(record))
    del spec


def _saying_task(last_words: str) -> None:
    os.environ[LAST_WORDS] = last_words
    nothing = ClusterClients.alike({})
    spec = SlotSpec(flow_config(P_TO_B), "3", nothing, nothing)
    SlotTask(spec, logging.INFO, "json", saying)([0])


def test_a_slot_logs_in_the_format_of_its_driver_and_says_which_slot_it_is(tmp_path: Path) -> None:
    last_words = tmp_path / "line"
    process = multiprocessing.get_context("spawn").Process(
        target=_saying_task, args=(str(last_words),)
    )
    process.start()
    try:
        process.join(DEADLINE_S)
        line = json.loads(last_words.read_text())
    finally:
        process.kill()
    assert (line["flow"], line["slot"], line["message"]) == ("P->B", "3", "copied")
