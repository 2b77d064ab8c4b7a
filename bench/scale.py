"""Cost of many topics and partitions in srm: start, memory, discovery, idling."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from bench.cases import Surroundings
from bench.clusters import Gate, Pair
from bench.data import one_record
from bench.errors import BenchError
from bench.results import Result
from bench.session import Session, WarmUp, session

_ALL_COPIED_S: Final = 300.0
_SETTLE_S: Final = 15.0
_IDLE_S: Final = 20.0
_LOOK_S: Final = 0.1
_SURROUNDINGS: Final = Surroundings("scale")

SIZES: Final = ((1, 1000), (500, 1), (1000, 1), (2000, 1))
"""(topics, partitions of each)."""


def name(topics: int, partitions: int) -> str:
    """Return the name of the case."""
    return f"scale-{topics}x{partitions}"


def sizes(fraction: float) -> list[tuple[int, int]]:
    """Return topics and partitions of each, scaled by that fraction, at least one."""
    return [
        (max(1, int(topics * fraction)), max(1, int(partitions * fraction)))
        for topics, partitions in SIZES
    ]


def measure(
    pair: Pair, gate: Gate, logs: Path, number: int, topics: int, partitions: int
) -> Result:
    """Create topics with one record in each partition, start srm and measure."""
    names = [f"bench-s{n:04d}" for n in range(topics)]
    pair.source.create_all(names, partitions)
    with pair.source.connect() as source:
        for topic in names:
            source.fill(topic, [dict.fromkeys(range(partitions), one_record())])
    first = WarmUp(names[0], partitions, partitions)
    with session(pair, gate, "srm", _SURROUNDINGS, logs, first, number) as current:
        return _measure(current, names, partitions)


def _measure(current: Session, names: list[str], partitions: int) -> Result:
    tree = current.running.tree
    wanted = {current.running.route.remote(topic): partitions for topic in names}
    deadline = time.monotonic() + _ALL_COPIED_S
    while missing := sum(end == 0 for end in current.target.log_ends(wanted).values()):
        current.running.check_alive()
        if time.monotonic() > deadline:
            raise BenchError(f"{missing} partitions are not copied within {_ALL_COPIED_S:.0f} s")
        time.sleep(_LOOK_S)
    all_copied = time.monotonic() - current.running.started
    start_cpu = tree.cpu_seconds()
    time.sleep(_SETTLE_S)
    before, began = tree.cpu_by_name(), time.monotonic()
    time.sleep(_IDLE_S)  # the measured time
    wall = time.monotonic() - began
    used = {k: v - before.get(k, 0.0) for k, v in tree.cpu_by_name().items()}
    added = current.announce("bench-added", 1)
    memory = tree.memory_by_name()
    total = len(names) * partitions
    return Result(
        name(len(names), partitions),
        "srm",
        f"{len(names)} topics, {partitions} partitions each",
        "scale",
        records=total,
        bytes=total,
        wall_seconds=round(all_copied, 2),
        cpu_seconds=round(start_cpu, 2),
        first_record_seconds=current.first_record_seconds,
        topic_creation_to_first_record_seconds=round(added, 2),
        idle_cpu_percent=round(sum(used.values()) / wall * 100, 2),
        resident_megabytes=round(sum(memory.values()), 1),
        details={
            "all_topics_copied_seconds": round(all_copied, 2),
            "idle_cpu_percent_by_process": {k: round(v / wall * 100, 2) for k, v in used.items()},
            "megabytes_by_process": {k: round(v, 1) for k, v in memory.items()},
        },
    )
