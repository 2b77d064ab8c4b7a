"""Running the replicator as a program: what signals do, and when its end is a success."""

from __future__ import annotations

import logging
import os
import signal
import threading
from typing import Final

from srm.errors import INTERRUPTED, StoppedError
from srm.signals import on_signals
from srm.spark.replication.replicator import Replicator

logger = logging.getLogger(__name__)

STOP_S: Final = 5.0


def run_program(replicator: Replicator, *, until_caught_up: bool = False) -> None:
    """Run the replicator in the main thread; SIGTERM and SIGINT end it within ``STOP_S``.

    Everything may be killed at any time, so what has not ended by then is not waited for.

    Raises:
        StoppedError: a signal or a request to end came before it had caught up.
    """
    signalled = False

    def end(number: int) -> None:
        nonlocal signalled
        if signalled:
            os._exit(128 + number)
        signalled = True
        logger.info("%s: stopping", signal.Signals(number).name)
        replicator.stop()
        timer = threading.Timer(STOP_S, os._exit, (0 if not until_caught_up else INTERRUPTED,))
        timer.daemon = True
        timer.start()

    on_signals(signal.SIGTERM, signal.SIGINT, call=end)
    replicator.run(until_caught_up=until_caught_up)
    if until_caught_up and (signalled or replicator.asked_to_end):
        raise StoppedError("stopped by a signal or on request before everything was copied")
