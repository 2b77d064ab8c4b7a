"""Cases without a backlog: latency, pauses, idling, starting."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from bench.cases import Case
from bench.clusters import PROJECT
from bench.errors import BenchError
from bench.results import Latency, Result, with_rates
from bench.session import Meter, Session
from bench.tree import PeakMemory, slot_workers

RUN_IN_S: Final = 5.0
IDLE_SETTLE_S: Final = 10.0
_TOPIC_EVERY_S: Final = 3.0
_READY_S: Final = 30.0
_SPARE_S: Final = 90.0
_FEW: Final = 5000


class Probe:
    """A child process of :mod:`bench.probe` whose last line is its outcome."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.probe", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
        )

    def wait_ready(self) -> None:
        """Wait for its first line."""
        if self._process.stdout is None or self._process.stdout.readline() != "ready\n":
            raise BenchError("a latency probe does not start")

    def outcome(self, seconds: float) -> dict[str, Any]:
        """Wait for its end and return what it found."""
        try:
            output, _ = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise BenchError("a latency probe does not end") from error
        if self._process.returncode:
            raise BenchError(f"a latency probe failed with exit code {self._process.returncode}")
        return dict(json.loads(output))

    def stop(self) -> None:
        """End it if it still runs."""
        self._process.kill()
        self._process.wait(_READY_S)


def latency(current: Session, case: Case, during: Callable[[], None] | None = None) -> Result:
    """Measure end to end, beside a probe on the source itself; ``during`` runs meanwhile.

    At high rates both probes watch one partition of the four: two that take 20 000 records a
    second one by one would need the processors that the engine is measured on.
    """
    topic = f"bench-{case.name}"
    creation = current.announce(topic, case.partitions)
    watched = range(case.partitions) if case.rate < _FEW else range(1)
    names = ",".join(map(str, watched))
    source, target = current.pair.source.bootstrap, current.pair.target.bootstrap
    probes = [
        Probe("watch", source, topic, names),
        Probe("watch", target, current.running.route.remote(topic), names),
    ]
    try:
        for probe in probes:
            probe.wait_ready()
        load = [str(case.rate), str(case.seconds), str(RUN_IN_S)]
        probes.append(Probe("produce", source, topic, str(case.partitions), *load))
        time.sleep(RUN_IN_S)
        with PeakMemory(current.running.tree) as memory:
            meter = Meter(current)
            if during is not None:
                during()
            produced = probes[2].outcome(case.seconds + RUN_IN_S + _SPARE_S)
            used = meter.read()
        floor, seen = (probe.outcome(_SPARE_S) for probe in probes[:2])
    finally:
        for probe in probes:
            probe.stop()
    return _latency_result(current, case, creation, memory.megabytes, used, produced, floor, seen)


def _latency_result(
    current: Session,
    case: Case,
    creation: float,
    megabytes: float,
    used: Mapping[str, Any],
    produced: Mapping[str, Any],
    floor: Mapping[str, Any],
    seen: Mapping[str, Any],
) -> Result:
    if seen["unfinished"]:
        raise BenchError(f"{current.engine}: partitions {seen['unfinished']} did not arrive")
    records = int(case.rate * case.seconds)
    return with_rates(
        Result(
            case.name,
            current.engine,
            case.title,
            "latency",
            records=records,
            bytes=records * case.payload.size,
            latency_ms=Latency(**seen["all"], floor=floor["all"]),
            first_record_seconds=current.first_record_seconds,
            topic_creation_to_first_record_seconds=round(creation, 2),
            resident_megabytes=round(megabytes, 1),
            details={
                "probed_records": seen["records"],
                "max_by_partition_ms": seen["max_by_partition"],
                "floor_max_by_partition_ms": floor["max_by_partition"],
                "produced_in_seconds": produced["seconds"],
            },
            **used,
        )
    )


def pauses(current: Session, case: Case) -> Result:
    """Measure latency while topics appear every few seconds."""

    def add_topics() -> None:
        for number in range(int(case.seconds / _TOPIC_EVERY_S) - 1):
            current.announce(f"bench-added-{number}", 4)
            time.sleep(_TOPIC_EVERY_S)  # the rhythm of the load, not a wait

    threads = []

    def during() -> None:
        threads.append(threading.Thread(target=add_topics, name="bench topics", daemon=True))
        threads[0].start()

    result = latency(current, case, during)
    threads[0].join(_SPARE_S)
    return result


def slot_lost(current: Session, case: Case) -> Result:
    """Measure latency while the Python worker of one of the slots is killed."""

    def kill_one() -> None:
        workers = slot_workers(current.running.tree)
        if not workers:
            raise BenchError("no worker of a slot is found")
        workers[0].kill()

    result = latency(current, case, kill_one)
    maxima = sorted(result.details["max_by_partition_ms"].values())
    elsewhere = maxima[: len(maxima) // 2]
    return replace(result, details={**result.details, "max_elsewhere_ms": elsewhere[-1]})


def idle(current: Session, case: Case) -> Result:
    """Measure CPU use over many partitions with nothing to copy."""
    creation = current.announce(f"bench-{case.name}", case.partitions)
    time.sleep(IDLE_SETTLE_S)  # until caches, reports and metadata refreshes have settled
    tree = current.running.tree
    with PeakMemory(tree) as memory:
        before = tree.cpu_by_name()
        meter = Meter(current)
        time.sleep(case.seconds)  # the span that is measured
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
    """Report how the session began, and the first record of a new topic."""
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
