"""Copy cost of srm beside MirrorMaker 2: same brokers, same data, same properties file, one run.

CPU seconds are user and system time of the engine's whole process tree (for srm: Spark driver, JVM
and Python workers; for MirrorMaker 2: its JVM), counted from the first copied record to the last.
Results go to build/bench/*.json, one object a line in the table.

    make bench                         1 KB records, MirrorMaker 2 with default settings
    make bench BENCH_ARGS="--records 2000000 --size 100"
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console
from rich.table import Table

from srm.engine.ports import TopicSpec
from srm.kafka.cluster import KafkaCluster
from srm.stack.jars import kafka_class_path
from srm.stack.java import find_java
from srm.stack.kafka import KafkaBroker

PARTITIONS = 4
START_S = 180.0
COPY_S = 600.0
PROJECT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Result:
    """One engine in one case."""

    case: str
    engine: str
    records: int
    bytes: int
    first_record_seconds: float
    wall_seconds: float
    cpu_seconds: float
    records_per_second: float
    records_per_cpu_second: float
    megabytes_per_cpu_second: float


class Tree:
    """CPU time of a process and all it has started, those that ended included."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._seen: dict[tuple[int, float], float] = {}

    def cpu_seconds(self) -> float:
        """Return user and system seconds so far."""
        for process in [self._root, *self._root.children(recursive=True)]:
            try:
                times = process.cpu_times()
                self._seen[process.pid, process.create_time()] = times.user + times.system
            except psutil.NoSuchProcess:
                continue
        return sum(self._seen.values())


def properties(source: str, target: str, source_alias: str) -> str:
    """Return a MirrorMaker 2 file that both engines take; aliases keep their topics apart."""
    flow = f"{source_alias}->B"
    return f"""clusters = {source_alias}, B
{source_alias}.bootstrap.servers = {source}
B.bootstrap.servers = {target}
{flow}.enabled = true
{flow}.topics = bench
B->{source_alias}.enabled = false
B->{source_alias}.emit.heartbeats.enabled = false
replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
tasks.max = 2
refresh.topics.interval.seconds = 5
"""


def command(engine: str, config: Path) -> list[str]:
    """Return how a user starts the engine."""
    if engine == "srm":
        srm = Path(sys.executable).parent / "srm"
        flow = next(
            line.split(".enabled")[0]
            for line in config.read_text().splitlines()
            if line.endswith(".enabled = true")
        )
        return [str(srm), "replicate", "--config", str(config), "--flow", flow]
    java = str(find_java().program)
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    return [java, "-Xmx2g", "-cp", kafka_class_path(), main, str(config)]


@contextmanager
def brokers(home: Path) -> Iterator[tuple[KafkaBroker, KafkaBroker]]:
    """Run the two clusters."""
    pair = KafkaBroker(home / "A", "A"), KafkaBroker(home / "B", "B")
    try:
        for broker in pair:
            broker.start()
        for broker in pair:
            broker.wait_ready()
        yield pair
    finally:
        for broker in pair:
            broker.kill()


def load(bootstrap: str, records: int, size: int) -> None:
    """Fill the source topic with random records, as a producer with default settings does."""
    props = {"bootstrap.servers": bootstrap}
    with KafkaCluster("A", props, props, props) as cluster:
        cluster.create_topics([TopicSpec("bench", PARTITIONS, 1, {})])
    producer = Producer(
        {**props, "linger.ms": 5, "batch.size": 131072, "queue.buffering.max.messages": 500_000}
    )
    values = [os.urandom(size) for _ in range(64)]
    for number in range(records):
        while True:
            try:
                producer.produce("bench", values[number % 64], partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(300):
        raise SystemExit("bench: the source could not be filled")


def copied(consumer: Consumer, topic: str) -> int:
    """Return the sum of the target's log ends; markers make it a little more than the records."""
    total = 0
    for number in range(PARTITIONS):
        try:
            _, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=5)
        except Exception:  # noqa: BLE001 - the topic does not exist yet
            return 0
        total += high
    return total


def measure(
    engine: str, pair: tuple[KafkaBroker, KafkaBroker], home: Path, records: int, size: int
) -> Result:
    """Run one engine from its start until everything is copied."""
    alias = engine.replace("-", "")
    config = home / f"{engine}.properties"
    config.write_text(properties(pair[0].bootstrap, pair[1].bootstrap, alias))
    consumer = Consumer({"bootstrap.servers": pair[1].bootstrap, "group.id": "bench"})
    log = (home / f"{engine}.log").open("w")
    started = time.monotonic()
    process = subprocess.Popen(
        command(engine, config), stdout=log, stderr=log, start_new_session=True, cwd=PROJECT
    )
    try:
        tree = Tree(process.pid)
        topic = f"{alias}.bench"
        wait(lambda: copied(consumer, topic) > PARTITIONS, START_S, f"first record of {engine}")
        first, cpu = time.monotonic(), tree.cpu_seconds()
        before = copied(consumer, topic)
        wait(lambda: copied(consumer, topic) >= records, COPY_S, f"last record of {engine}")
        wall, cpu = time.monotonic() - first, tree.cpu_seconds() - cpu
    finally:
        os.killpg(process.pid, 15)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
        consumer.close()
        log.close()
    records -= before  # copied before the figures began
    volume = records * size
    return Result(
        case=f"{size} B random, {PARTITIONS} partitions",
        engine=engine,
        records=records,
        bytes=volume,
        first_record_seconds=round(first - started, 2),
        wall_seconds=round(wall, 2),
        cpu_seconds=round(cpu, 2),
        records_per_second=round(records / wall),
        records_per_cpu_second=round(records / cpu),
        megabytes_per_cpu_second=round(volume / 1e6 / cpu, 1),
    )


def wait(condition: object, seconds: float, what: str) -> None:
    """Poll a condition, often enough for the figures."""
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise SystemExit(f"bench: not within {seconds:.0f} s: {what}")
        time.sleep(0.02)


def show(results: Sequence[Result]) -> None:
    """Print the table, with ratios to MirrorMaker 2."""
    table = Table(title="Copy cost, counted from the first copied record")
    for column in (
        "case",
        "engine",
        "records/s",
        "CPU s",
        "records / CPU s",
        "MB / CPU s",
        "ratio",
    ):
        table.add_column(column, justify="left" if column in ("case", "engine") else "right")
    base = {r.case: r.records_per_cpu_second for r in results if r.engine == "mm2-default"}
    for r in results:
        ratio = r.records_per_cpu_second / base[r.case]
        table.add_row(
            r.case,
            r.engine,
            f"{r.records_per_second:,}",
            f"{r.cpu_seconds:.2f}",
            f"{r.records_per_cpu_second:,}",
            f"{r.megabytes_per_cpu_second:,}",
            f"{ratio:.1f}x",
        )
    Console().print(table)


def main() -> None:
    """Run both engines and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=PROJECT / "build" / "bench")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = []
    with tempfile.TemporaryDirectory(prefix="srm-bench-") as home, brokers(Path(home)) as pair:
        load(pair[0].bootstrap, arguments.records, arguments.size)
        for engine in ("mm2-default", "srm"):
            result = measure(engine, pair, Path(home), arguments.records, arguments.size)
            results.append(result)
            name = f"{arguments.size}-{engine}.json"
            (arguments.out / name).write_text(json.dumps(asdict(result), indent=2) + "\n")
    show(results)


if __name__ == "__main__":
    main()
