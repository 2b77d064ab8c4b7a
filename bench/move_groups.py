"""Hold time of a move: ``python -m bench.move_groups --groups 400``, or with ``--unplanned``.

Two embedded brokers, one topic copied by a real replicator, groups without
members that have read half of it. Measures the seconds of each step, and from hold to go by the
broker's clock. Before an unplanned move the source is killed, once all groups have checkpoints.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from bench.errors import BenchError, wait
from bench.machine import describe_machine
from bench.service_idle import running
from srm.config.loader import load_config
from srm.config.model import Config
from srm.domain.moves.progress import RunStep
from srm.domain.moves.request import Mode, MoveRequest
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import TopicSpec
from srm.engine.moves import planning, steps
from srm.engine.moves.store import MoveStore
from srm.kafka.cluster import KafkaCluster
from srm.wiring import open_move
from srm_lab.stack.stack import Stack, StackOptions

TOPIC: Final = "Payments"
_RECORDS: Final = 3_000
_COPIED_S: Final = 180.0
_AT_A_TIME: Final = 8
_MOVE_ID: Final = "bench"


def fill(config: Config, groups: Sequence[str], partitions: int) -> None:
    """Write records, and commit offsets of the groups in the middle of them."""
    producer = Producer(config.client("P", "producer"))
    for number in range(_RECORDS):
        producer.produce(TOPIC, b"x" * 100, partition=number % partitions)
    producer.flush()
    middle = _RECORDS // partitions // 2
    commits = {TopicPartition(TOPIC, number): middle for number in range(partitions)}
    with (
        closing(KafkaCluster("P", config.cluster_clients("P"))) as cluster,
        ThreadPoolExecutor(_AT_A_TIME) as pool,
    ):
        list(pool.map(partial(cluster.commit_idle, offsets=commits), groups))


@contextmanager
def timing(taken: dict[str, float], step: RunStep) -> Iterator[None]:
    """Keep the seconds of a step."""
    began = time.monotonic()
    yield
    taken[step] = round(time.monotonic() - began, 2)


def move_request(groups: Sequence[str], mode: Mode = "planned") -> MoveRequest:
    """Build the request; the groups have no members, so the wait for them is the shortest."""
    chosen = tuple(groups)
    return MoveRequest("failover", "P", "B", (TOPIC,), chosen, mode=mode, resume_seconds=1.0)


def wait_for_checkpoints(config: Config, groups: Sequence[str]) -> None:
    """Wait until a forecast knows a place of every group."""
    request = MoveRequest("failover", "P", "B", groups=tuple(groups), mode="unplanned")
    with open_move(config, "P", "B", unplanned=True) as context:

        def placed() -> bool:
            forecast = planning.plan(context, request, _MOVE_ID, dry_run=True).forecast
            return forecast is not None and not forecast.unseen

        wait(placed, _COPIED_S, "checkpoints of all groups", 1.0)


def carry_out(config: Config, request: MoveRequest) -> dict[str, float]:
    """Move the groups; return the seconds of the steps."""
    taken: dict[str, float] = {}
    with open_move(config, "P", "B", unplanned=request.is_unplanned) as context:

        def planned() -> bool:
            began = time.monotonic()
            ready = not planning.plan(context, request, _MOVE_ID).blocking
            taken["plan"] = round(time.monotonic() - began, 2)
            return ready

        wait(planned, _COPIED_S, "a plan without problems")
        steps.carry_out(context, _MOVE_ID, around=partial(timing, taken))
        done = MoveStore.read(context).progress(_MOVE_ID)
    if done.hold_stamp_ms is None or done.gone_stamp_ms is None:
        raise BenchError("the target's broker stamped neither hold nor go")
    return {**taken, "hold to go": (done.gone_stamp_ms - done.hold_stamp_ms) / 1000}


def measure(
    home: Path, count: int, partitions: int, mode: Mode, profile: Path | None
) -> dict[str, float]:
    """Measure on a separate stack."""
    stack = Stack(StackOptions(home=home, kafka_only=True))
    stack.up()
    try:
        path = stack.config_path
        config, groups = load_config(path), [f"group-{number}" for number in range(count)]
        with closing(KafkaCluster("P", config.cluster_clients("P"))) as source:
            source.create_topics([TopicSpec(TOPIC, partitions, 1, {})])
        fill(config, groups, partitions)
        command = ["srm", "replicate", "--config", str(path), "--flow", "P->B"]
        with running(*command, log=home / "r.log"):
            if mode == "unplanned":
                wait_for_checkpoints(config, groups)
                stack.brokers["P"].kill()
            profiler = nullcontext() if profile is None else cProfile.Profile()
            with profiler as calls:
                found = carry_out(config, move_request(groups, mode))
            if profile is not None and calls is not None:
                calls.dump_stats(profile)
    finally:
        stack.down()
    return found


def main() -> int:
    """Measure, print and write build/bench/move-groups-*.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=400)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument(
        "--unplanned", dest="mode", action="store_const", const="unplanned", default="planned"
    )
    parser.add_argument("--profile", type=Path, help="file for the profile of the moving thread")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    options = parser.parse_args()
    machine = describe_machine()
    with tempfile.TemporaryDirectory(prefix="srm-move-") as folder:
        sizes = options.groups, options.partitions
        found = measure(Path(folder), *sizes, options.mode, options.profile)
    options.out.mkdir(parents=True, exist_ok=True)
    result = {
        "machine": machine,
        "groups": options.groups,
        "partitions": options.partitions,
        "mode": options.mode,
        "seconds": found,
    }
    file = options.out / f"move-groups-{options.groups}-{options.mode}.json"
    file.write_text(json.dumps(result, indent=2) + "\n")
    for name, value in found.items():
        sys.stdout.write(f"{value:>8} s {name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
