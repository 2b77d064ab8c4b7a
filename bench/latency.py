"""Cases that measure the latency of single records, undisturbed and during events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import psutil

from bench.cases import EVENT, Case
from bench.clusters import PROJECT
from bench.data import copies
from bench.errors import BenchError, wait
from bench.results import Latency, Result, with_rates
from bench.session import Meter, Session
from bench.tree import PeakMemory
from srm_lab.processes import slot_workers

RUN_IN_S: Final = 15.0
"""Until then the brokers compile the code paths of load and probes, at the cost of the engine."""
_TOPIC_EVERY_S: Final = 3.0
_READY_S: Final = 30.0
_SPARE_S: Final = 90.0
_FEW: Final = 5000
_CANARY: Final = "bench-canary"
_CANARY_RECORDS: Final = 3  # a claim takes one offset


class Probe:
    """Child process of :mod:`bench.probe`; its last line is the outcome."""

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
        """Wait for its end and return its outcome."""
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


def latency(
    current: Session,
    case: Case,
    during: Callable[[], None] | None = None,
    run_in_s: float = RUN_IN_S,
) -> Result:
    """Create the case's topic and measure on it."""
    creation = current.announce(topic_of(case), case.partitions)
    result = measure(current, case, during, run_in_s)
    return replace(result, topic_creation_to_first_record_seconds=round(creation, 2))


def topic_of(case: Case) -> str:
    """Return the topic that the case's records go to."""
    return f"bench-{case.name}"


def measure(
    current: Session, case: Case, during: Callable[[], None] | None, run_in_s: float
) -> Result:
    """Measure end to end, with a probe on the source as well; ``during`` runs in that time.

    At high rates both probes watch one partition of the four: two probes that read 20 000 records
    a second one by one would take the processors from the engine.
    """
    topic = topic_of(case)
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
        load = [str(case.rate), str(case.seconds), str(run_in_s)]
        probes.append(Probe("produce", source, topic, str(case.partitions), *load))
        time.sleep(run_in_s)  # uncounted records
        with PeakMemory(current.running.tree) as memory:
            meter = Meter(current)
            if during is not None:
                during()
            produced = probes[2].outcome(case.seconds + run_in_s + _SPARE_S)
            used = meter.read()
        floor, seen = (probe.outcome(_SPARE_S) for probe in probes[:2])
    finally:
        for probe in probes:
            probe.stop()
    return _result(current, case, memory.megabytes, used, produced, floor, seen)


def _result(
    current: Session,
    case: Case,
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


def busy(current: Session, case: Case) -> Result:
    """Measure while each processor runs a busy process."""
    with _every_core_busy():
        return latency(current, case)


@contextmanager
def _every_core_busy() -> Iterator[None]:
    burning = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait(_READY_S)


def pauses(current: Session, case: Case) -> Result:
    """Measure latency while topics appear every few seconds."""
    seconds: list[float] = []

    def add_topics() -> None:
        for number in range(int(case.seconds / _TOPIC_EVERY_S) - 1):
            seconds.append(round(current.announce(f"bench-added-{number}", 4), 2))
            time.sleep(_TOPIC_EVERY_S)  # pace of the load, not a wait

    adding = threading.Thread(target=add_topics, name="bench topics", daemon=True)
    result = latency(current, case, adding.start)
    adding.join(_SPARE_S)
    return replace(result, details={**result.details, "added_topics_first_record_s": seconds})


def slot_lost(current: Session, case: Case) -> Result:
    """Measure latency while the Python worker of one of the slots is killed."""
    result = latency(current, case, _workers(current)[0].kill)
    maxima = sorted(result.details["max_by_partition_ms"].values())
    elsewhere = maxima[: len(maxima) // 2]
    return replace(result, details={**result.details, "max_elsewhere_ms": elsewhere[-1]})


def claim(current: Session, case: Case) -> Result:
    """Measure the first record of each partition after its killed slot has restarted.

    A slot claims a partition and finds its position when it has records to write; each of these
    records waits for that.
    """
    creation = current.announce(topic_of(case), case.partitions)
    current.announce(_CANARY, case.partitions)
    for worker in _workers(current):
        worker.kill()
    _wait_for_slots(current, case.partitions)
    current.settle()
    result = measure(current, case, None, run_in_s=0.0)
    return replace(result, topic_creation_to_first_record_seconds=round(creation, 2))


def _wait_for_slots(current: Session, partitions: int) -> None:
    """Wait until records of another topic, with partitions in all slots, are copied."""
    wanted = {current.running.route.remote(_CANARY): partitions}
    before = current.target.log_ends(wanted)
    current.source.fill(_CANARY, copies(EVENT, partitions, _CANARY_RECORDS))

    def arrived() -> bool:
        ends = current.target.log_ends(wanted)
        return all(ends[where] >= end + _CANARY_RECORDS for where, end in before.items())

    wait(arrived, _SPARE_S, "slots that were killed copy again")


def _workers(current: Session) -> list[psutil.Process]:
    workers = slot_workers(current.running.tree.root)
    if not workers:
        raise BenchError("no worker of a slot is found")
    return workers
