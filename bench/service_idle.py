"""Idle cost of the SRM service: ``python -m bench.service_idle``.

Two embedded brokers, a hundred partitions copied by a real replicator, three groups with
checkpoints, no writes. Measures the CPU seconds of the service's process, and of the replicator
with and without its thread of windows.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import psutil
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.errors import wait
from bench.machine import describe_machine
from srm_lab.stack.process import LOOPBACK, free_port
from srm_lab.stack.stack import Stack, StackOptions

BIN: Final = Path(sys.executable).parent
TOPICS: Final = 10
PARTITIONS: Final = 10
_WARM_S: Final = 60.0
_START_S: Final = 180.0


@contextmanager
def running(*command: str, log: Path) -> Iterator[psutil.Process]:
    """Run a program during the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(BIN / command[0]), *command[1:]],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and its descendants."""
    every = [process, *process.children(recursive=True)]
    return sum(times.user + times.system for times in (one.cpu_times() for one in every))


def percent(processes: list[psutil.Process], seconds: float) -> list[float]:
    """Return the percent of a core that processes use."""
    began, before = time.monotonic(), [cpu_s(process) for process in processes]
    time.sleep(seconds)
    took = time.monotonic() - began
    return [
        round((cpu_s(process) - was) / took * 100, 2)
        for process, was in zip(processes, before, strict=True)
    ]


def fill(servers: str) -> None:
    """Write a few records, and let three groups commit."""
    admin = AdminClient({"bootstrap.servers": servers})
    names = [f"Payments{number}" for number in range(TOPICS)]
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        made.result(60)
    producer = Producer({"bootstrap.servers": servers})
    for name in names:
        for number in range(1000):
            producer.produce(name, b"x" * 100, key=str(number))
    producer.flush()
    for group in ("ledger", "fraud", "analytics"):
        consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(names)
        left = TOPICS * 1000
        while left > 0:
            left -= len(consumer.consume(1000, 5.0))
        consumer.commit(asynchronous=False)
        consumer.close()


def measure(home: Path, seconds: float) -> dict[str, float]:
    """Measure on a separate stack."""
    stack = Stack(StackOptions(home=home, kafka_only=True))
    stack.up()
    try:
        config = ["--config", str(stack.config_path)]
        fill(stack.brokers["P"].bootstrap)
        port = free_port()
        with (
            running("srm", "replicate", *config, "--flow", "P->B", log=home / "r.log") as copying,
            running("srm-service", *config, "--port", str(port), log=home / "s.log") as service,
        ):
            address = f"http://{LOOPBACK}:{port}/v2/flows/P/B"

            def copied() -> bool:
                try:
                    flow = httpx.get(address, timeout=10).json()
                except httpx.TransportError:
                    return False
                return flow.get("partitions", 0) >= TOPICS * PARTITIONS and not flow["lag"]

            wait(copied, _START_S, "the copies")
            subprocess.run(
                [BIN / "srm", "checkpoints", "emit", *config, "--json"],
                check=True,
                capture_output=True,
            )
            time.sleep(_WARM_S)
            service_percent, copying_percent = percent([service, copying], seconds)
            memory_mb = service.memory_info().rss >> 20
    finally:
        stack.down()
    return {
        "service_percent_of_a_core": service_percent,
        "service_memory_mb": memory_mb,
        "replicator_percent_of_a_core": copying_percent,
    }


def main() -> int:
    """Measure, print and write build/bench/service-idle.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    options = parser.parse_args()
    machine = describe_machine()
    with tempfile.TemporaryDirectory(prefix="srm-service-") as folder:
        found = measure(Path(folder), options.seconds)
    options.out.mkdir(parents=True, exist_ok=True)
    result = {"machine": machine, "partitions": TOPICS * PARTITIONS, **found}
    (options.out / "service-idle.json").write_text(json.dumps(result, indent=2) + "\n")
    for name, value in found.items():
        sys.stdout.write(f"{value:>8} {name.replace('_', ' ')}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
