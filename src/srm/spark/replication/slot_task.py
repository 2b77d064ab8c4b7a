"""One slot inside a Spark task, for as long as the task lives.

How it ends. Spark does not notify a Python worker that its job was cancelled. It kills the worker
(``spark.python.task.killTimeout`` later), and claims prevent damage. When the application ends,
Spark's worker daemon hangs up on its workers. The slot then stops and writes its last positions,
and the process is gone after ``LINGER_S`` at most. A new assignment, not a restart, changes what a
slot copies.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from srm import logs
from srm.logs import LogFormat
from srm.replication.copy.slot import SlotSpec
from srm.spark.replication.slot import run_slot

LINGER_S: Final = 2.0

SlotFunction = Callable[[SlotSpec, threading.Event], None]


@dataclass(frozen=True)
class SlotTask:
    """The function that Spark calls in the worker: it returns when the slot ends.

    Spark pickles it by reference to its class, and ``run`` by reference to the function.
    """

    spec: SlotSpec
    log_level: int
    log_format: LogFormat = "text"
    run: SlotFunction = run_slot

    def __call__(self, elements: Iterable[int]) -> None:
        """Run the slot; a task's result would arrive only when it has ended, so there is none."""
        for _ in elements:  # the one that makes Spark start the task
            pass
        logs.prefer(self.log_format)
        process = {"flow": str(self.spec.flow_config.flow), "slot": self.spec.slot}
        logs.set_up(srm=self.log_level, process=process)
        # What it has to say about connections comes back as the error of the call, in our words.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        stop = threading.Event()
        signal.signal(signal.SIGHUP, lambda _number, _frame: _hang_up(stop))
        self.run(self.spec, stop)
        if stop.is_set():
            os._exit(0)  # the socket to Spark is closed: a return would only print a stack trace


def _hang_up(stop: threading.Event) -> None:
    # Spark hangs up twice, and a second call inside stop.set() would wait for its lock for ever.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    timer = threading.Timer(LINGER_S, os._exit, (0,))
    timer.daemon = True
    timer.start()
    stop.set()
