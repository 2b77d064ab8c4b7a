"""The line between the sites fails before P does, so that some payments are not copied."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import psutil
from tests.waiting import eventually

from srm.spark import WORKER_DAEMON
from srm_lab.demo.disaster import Disaster
from srm_lab.processes import slot_workers

FORKS = "import os, sys; os.wait() if os.fork() else sys.stdin.read()"


def test_slots_wait_while_the_line_is_down() -> None:
    """A slow sale was copied as it was made: the demo ended NOT OK, or lost nothing."""
    world: Any = None
    application = psutil.Process()
    disaster = Disaster(world, 10, application)
    daemon = subprocess.Popen([sys.executable, "-c", FORKS, WORKER_DAEMON], stdin=subprocess.PIPE)
    eventually(lambda: slot_workers(application), "the daemon forks a worker")
    [slot] = slot_workers(application)

    with disaster.line_down():
        eventually(lambda: slot.status() == psutil.STATUS_STOPPED, "the slot waits")

    eventually(lambda: slot.status() != psutil.STATUS_STOPPED, "the slot works")
    daemon.communicate()
