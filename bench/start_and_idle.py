"""Cases without a load: idling and starting."""

from __future__ import annotations

import time
from typing import Final

from bench.cases import Case
from bench.results import Result
from bench.session import Meter, Session
from bench.tree import PeakMemory

IDLE_SETTLE_S: Final = 10.0


def idle(current: Session, case: Case) -> Result:
    """Measure CPU use over many partitions with nothing to copy."""
    creation = current.announce(f"bench-{case.name}", case.partitions)
    time.sleep(IDLE_SETTLE_S)  # until caches, reports and metadata refreshes settle
    tree = current.running.tree
    with PeakMemory(tree) as memory:
        before = tree.cpu_by_name()
        meter = Meter(current)
        time.sleep(case.seconds)  # the measured time
        used = meter.read()
        after = tree.cpu_by_name()
    share = {
        name: round((seconds - before.get(name, 0.0)) / used["wall_seconds"] * 100, 2)
        for name, seconds in after.items()
    }
    return Result(
        case.name,
        current.engine,
        case.title,
        "idle",
        idle_cpu_percent=round(used["cpu_seconds"] / used["wall_seconds"] * 100, 2),
        first_record_seconds=current.first_record_seconds,
        topic_creation_to_first_record_seconds=round(creation, 2),
        resident_megabytes=round(memory.megabytes, 1),
        details={
            "idle_cpu_percent_by_process": share,
            "megabytes_by_process": {n: round(m, 1) for n, m in tree.memory_by_name().items()},
        },
        **used,
    )


def start(current: Session, case: Case) -> Result:
    """Report the start of the session, and the first record of a new topic."""
    creation = current.announce(f"bench-{case.name}", case.partitions)
    memory = current.running.tree.memory()
    return Result(
        case.name,
        current.engine,
        case.title,
        "start",
        records=1,
        wall_seconds=current.first_record_seconds,
        cpu_seconds=round(current.running.tree.cpu_seconds(), 3),
        first_record_seconds=current.first_record_seconds,
        topic_creation_to_first_record_seconds=round(creation, 2),
        resident_megabytes=round(memory, 1),
    )
