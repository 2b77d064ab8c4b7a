"""Cost of one small move after many past ones, and of many moves at once.

Two embedded brokers, topics copied by a real replicator, one group without members for each move.
The past is written as the records that ended moves of 3 000 groups keep. Measures the time from
hold to go by the broker's clock, and the CPU of the process that moves.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final

from confluent_kafka import Producer

from bench.errors import BenchError, wait
from bench.machine import describe_machine
from bench.service_idle import running
from srm.config.loader import load_config
from srm.config.model import Config
from srm.domain.moves.line import MoveLine
from srm.domain.moves.plan import GroupPlan, MovePlan, PartitionMove
from srm.domain.moves.progress import MoveProgress
from srm.domain.moves.report import build_report
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.revisions import report_key
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import TopicSpec
from srm.engine.moves import planning, steps
from srm.engine.moves.context import ensure_topics
from srm.engine.moves.store import MoveStore
from srm.engine.moves.tables import ControlChange
from srm.kafka.cluster import KafkaCluster
from srm.wiring import open_move
from srm_lab.stack.stack import Stack, StackOptions

PAST: Final = (0, 10, 100)
AT_ONCE: Final = (1, 4, 16)
_REPEATS: Final = 3
_GROUPS: Final = 3_000
_PARTITIONS: Final = 3
_RECORDS: Final = 300
_COPIED_S: Final = 180.0
_MOVE_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of moves after a past: median and longest time from hold to go, CPU of one process."""

    past: int
    at_once: int
    done: int
    rto_s: float
    longest_rto_s: float
    cpu_s: float
    total_s: float


def topic(number: int) -> str:
    return f"Payments-{number}"


def group(number: int) -> str:
    return f"group-{number}"


def past_move(at_ms: int) -> tuple[MoveLine, bytes]:
    """Return line and report of a move of many groups that has ended."""
    rows = tuple(
        GroupPlan(
            f"past-{one:04}",
            (),
            tuple(
                PartitionMove(
                    *("Orders", part, "P.Orders", "forward", "translated"),
                    *(1000 + one, 5),
                    resume=2000 + one,
                )
                for part in range(_PARTITIONS)
            ),
        )
        for one in range(_GROUPS)
    )
    request = MoveRequest("failover", "P", "B")
    plan = MovePlan("past", at_ms, request, ("Orders",), rows, (), {})
    times = {"holding": at_ms, "gone": at_ms + 5_000}
    intended = {row.group: {str(p.target): p.resume or 0 for p in row.positions} for row in rows}
    progress = MoveProgress(plan.move_id, 9, "reported", 1, times_ms=times, intended=intended)
    return MoveLine.of(plan, progress).end(), build_report(plan, progress).value()


def add_past(config: Config, numbers: Sequence[int]) -> None:
    """Write past moves on both clusters."""
    if not numbers:
        return
    line, report = past_move(1_700_000_000_000)
    with open_move(config, "P", "B") as context:
        ensure_topics(context)
    for alias in ("P", "B"):
        with closing(KafkaCluster(alias, config.cluster_clients(alias))) as cluster:
            for number in numbers:
                move_id = f"past-{number}"
                own = report.replace(b'"past"', f'"{move_id}"'.encode())
                known = replace(line.progress, move_id=move_id)
                change = ControlChange(
                    documents={report_key(move_id): own},
                    lines=(replace(line, move_id=move_id, progress=known),),
                )
                cluster.compacted_topic(internal_topics.MOVES).write(
                    change.records()[internal_topics.MOVES]
                )


def fill(config: Config, numbers: Sequence[int]) -> None:
    """Create topics with records, and commit offsets of a group in the middle of each."""
    with closing(KafkaCluster("P", config.cluster_clients("P"))) as cluster:
        cluster.create_topics([TopicSpec(topic(one), _PARTITIONS, 1, {}) for one in numbers])
        producer = Producer(config.client("P", "producer"))
        for one in numbers:
            for record in range(_RECORDS):
                producer.produce(topic(one), b"x" * 100, partition=record % _PARTITIONS)
        producer.flush()
        middle = _RECORDS // _PARTITIONS // 2
        for one in numbers:
            commits = {TopicPartition(topic(one), part): middle for part in range(_PARTITIONS)}
            cluster.commit_idle(group(one), commits)


def move(path: Path, number: int) -> tuple[float, float]:
    """Carry one move out; return the seconds from hold to go, and the CPU seconds since then."""
    config, move_id = load_config(path), f"bench-{number}"
    request = MoveRequest(
        *("failover", "P", "B", (topic(number),), (group(number),)), resume_seconds=1.0
    )
    began = time.process_time()
    with open_move(config, "P", "B") as context:
        planning.plan(context, request, move_id)
        steps.carry_out(context, move_id)
        done = MoveStore.read(context).progress(move_id)
    if done.hold_stamp_ms is None or done.gone_stamp_ms is None:
        raise BenchError("the target's broker stamped neither hold nor go")
    return (done.gone_stamp_ms - done.hold_stamp_ms) / 1000, time.process_time() - began


def move_apart(path: Path, number: int) -> tuple[float, float]:
    """Carry a move out in a process of its own; return as :func:`move`."""
    command = [sys.executable, "-m", "bench.moves", str(path), str(number)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_MOVE_S, check=False)
    if done.returncode:
        raise BenchError(f"move {number}: {done.stderr[-2000:]}")
    rto_s, cpu_s = map(float, done.stdout.split()[-2:])
    return rto_s, cpu_s


def move_all(path: Path, numbers: Sequence[int], past: int, *, threads: bool = False) -> Cost:
    """Carry moves out at once, each in a process or in a thread of its own."""
    began, one = time.monotonic(), move if threads else move_apart
    failed: list[str] = []
    found: list[tuple[float, float]] = []
    with ThreadPoolExecutor(len(numbers)) as pool:
        for future in [pool.submit(one, path, number) for number in numbers]:
            try:
                found.append(future.result())
            except Exception as error:  # noqa: BLE001 -- of one move; the others count
                failed.append(str(error))
    for line in failed:
        sys.stderr.write(f"failed: {line}\n")
    rtos, cpus = [rto for rto, _ in found] or [0.0], [cpu for _, cpu in found] or [0.0]
    total = time.monotonic() - began
    return Cost(
        *(past, len(numbers), len(found)),
        *(round(median(rtos), 2), round(max(rtos), 2), round(median(cpus), 2), round(total, 1)),
    )


@contextmanager
def stack(home: Path, numbers: Sequence[int]) -> Iterator[Path]:
    """Start two clusters with copied topics; yield the properties file."""
    made = Stack(StackOptions(home=home, kafka_only=True))
    made.up()
    try:
        config = load_config(made.config_path)
        fill(config, numbers)
        command = ["srm", "replicate", "--config", str(made.config_path), "--flow", "P->B"]
        with running(*command, log=home / "r.log"):
            wait_until_copied(config, numbers)
            yield made.config_path
    finally:
        made.down()


def wait_until_copied(config: Config, numbers: Sequence[int]) -> None:
    topics, groups = tuple(map(topic, numbers)), tuple(map(group, numbers))
    request = MoveRequest("failover", "P", "B", topics, groups)
    with open_move(config, "P", "B") as context:

        def ready() -> bool:
            return not planning.plan(context, request, "look", dry_run=True).blocking

        wait(ready, _COPIED_S, "a plan without problems", 1.0)


def measure(home: Path, past: Sequence[int], at_once: Sequence[int]) -> Iterator[Cost]:
    """Yield the cost of each case; all moves are of different topics and groups."""
    needed = len(past) * _REPEATS + 2 * sum(at_once)
    numbers, written = iter(range(needed)), 0
    with stack(home, range(needed)) as path:
        config = load_config(path)
        for count in at_once:
            yield move_all(path, [next(numbers) for _ in range(count)], 0)
        for count in at_once:
            yield move_all(path, [next(numbers) for _ in range(count)], 0, threads=True)
        for count in past:
            add_past(config, range(written, count))
            written = count
            runs = [move_all(path, [next(numbers)], count) for _ in range(_REPEATS)]
            yield sorted(runs, key=lambda one: one.rto_s)[_REPEATS // 2]


def run(out: Path, past: Sequence[int] = PAST, at_once: Sequence[int] = AT_ONCE) -> None:
    """Measure, print and write ``moves.json``."""
    found = []
    with tempfile.TemporaryDirectory(prefix="srm-moves-") as folder:
        for cost in measure(Path(folder), past, at_once):
            found.append(asdict(cost))
            sys.stdout.write(f"{cost}\n")
            sys.stdout.flush()
    out.mkdir(parents=True, exist_ok=True)
    result = {"machine": describe_machine(), "costs": found}
    (out / "moves.json").write_text(json.dumps(result, indent=2) + "\n")


def main() -> int:
    """Carry out one move: ``python -m bench.moves FILE NUMBER``."""
    rto_s, cpu_s = move(Path(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.write(f"{rto_s} {cpu_s}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
