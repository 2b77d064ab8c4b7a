"""Starts Airflow's scheduler: ``python -m srm_lab.stack.airflow_forking scheduler``.

Each task is forked from it, and most of a small task's CPU time went into importing the same
modules again, 0.4 s each. They are in memory here before Airflow forks. Nothing of the plugins
folder is: what a person changes there counts at once.
"""

from __future__ import annotations

import importlib
import runpy
from typing import Final

NEEDED_BY_TASKS: Final = (
    "requests",  # of Airflow's Spark provider
    "srm.engine.groups.checkpoints",
    "srm.engine.groups.group_sync",
    "srm.engine.moves",
    "srm.engine.control.topic_sync",
    "srm.spark.supervisor",
    "srm.wiring",
)

if __name__ == "__main__":
    for name in NEEDED_BY_TASKS:
        importlib.import_module(name)
    runpy.run_module("airflow", run_name="__main__", alter_sys=True)
