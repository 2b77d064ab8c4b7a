"""Cost of a verification: two embedded clusters, a topic and its copy by srm, compared in Spark.

    python -m bench.verification                       5 million records of 1 KB, 10 GB to be read
    python -m bench.verification --records 1000000 --codec lz4 --content json

One run measures: the start of Spark, all records by bytes, again without new records, again with a
few new ones, a part by ordinary consumers (``srm verify --by-records``) for comparison, and the
whole command ``srm verify --full``. The last line on stdout is one JSON object. It needs free disk
space for the records twice; all is deleted at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from bench.clusters import PROJECT, Pair, clusters
from bench.data import CODECS, Payload, batch_rounds, copies
from bench.errors import BenchError
from bench.machine import describe_machine
from bench.tables import say
from bench.tree import Tree
from srm.config.loader import load_config
from srm.config.model import Config
from srm.domain.names.topics import Flow
from srm.engine.verification import VerificationRequest
from srm.spark.session import spark_session
from srm.spark.verification import BothClusters, verify
from srm.wiring import open_flow

FLOW: Final = Flow("A", "B")
_TOPIC: Final = "bench-verify"
_NEWS: Final = 10_000
_COPY_S: Final = 1800.0


def main() -> int:
    """Measure as the command line selects."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--size", type=int, default=1000, help="bytes of a value")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--codec", choices=sorted(CODECS), default="none")
    parser.add_argument("--content", choices=("random", "json"), default="random")
    parser.add_argument("--batch", type=int, default=16, help="records in a batch of the source")
    parser.add_argument("--by-records", type=int, default=500_000, help="records read that way")
    chosen = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="srm-bench-verify-"))
    with clusters(home) as pair:
        print(json.dumps(measure(pair, home, chosen), indent=2))
    return 0


def measure(pair: Pair, home: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """Create a topic and its copy, and verify it in each way."""
    file = _write_config(pair, home)
    config = load_config(file)
    payload = Payload(chosen.size, chosen.content, chosen.codec, chosen.batch)
    pair.source.create(_TOPIC, chosen.partitions, {"retention.ms": "-1"})
    say(f"writing {chosen.records:,} records: {payload.title}")
    _append(pair, payload, chosen.partitions, chosen.records)
    _copy(file)
    figures: dict[str, Any] = {"machine": describe_machine(), "payload": payload.title}
    with ExitStack() as stack:
        with _timed(figures, "spark_start"):
            spark = stack.enter_context(spark_session("srm-verification-bench"))
        run = _runner(spark, config, figures)
        run("first", VerificationRequest())
        run("nothing_new", VerificationRequest())
        _append(pair, payload, chosen.partitions, _NEWS)
        _copy(file)
        run("little_new", VerificationRequest())
        run("again_in_full", VerificationRequest(full=True))
        each = max(1, chosen.by_records // chosen.partitions)
        run("by_records", VerificationRequest(max_records=each, full=True, by_records=True))
        run("same_by_bytes", VerificationRequest(max_records=each, full=True))
    for name, options in (("command_full", ["--full"]), ("command_nothing_new", [])):
        with _timed(figures, name) as measured:
            measured.update(_counts(json.loads(_command("verify", *options, "--json", file=file))))
    return figures


def _counts(summary: Mapping[str, Any]) -> dict[str, int]:
    names = {"records": "source_records", "by_records": "by_records"}
    return {name: sum(p[key] for p in summary["partitions"]) for name, key in names.items()}


def _runner(
    spark: SparkSession, config: Config, figures: dict[str, Any]
) -> Callable[[str, VerificationRequest], None]:
    def run(name: str, request: VerificationRequest) -> None:
        with open_flow(config, FLOW) as context, _timed(figures, name) as measured:
            summary = verify(spark, context, BothClusters.of(config, FLOW), request)
        bad = [p for p in summary.partitions if p.outcome != "equal"]
        if bad:
            raise BenchError(f"{name}: {bad[0]}")
        records = sum(p.source_records for p in summary.partitions)
        by_records = sum(p.by_records for p in summary.partitions)
        measured |= {"records": records, "by_records": by_records}

    return run


@contextmanager
def _timed(figures: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    """Measure wall and CPU seconds of this process and its descendants, including brokers."""
    measured: dict[str, Any] = {}
    tree = Tree(os.getpid())
    began, used = time.monotonic(), tree.cpu_by_name()
    yield measured
    measured["seconds"] = round(time.monotonic() - began, 2)
    measured["cpu_seconds"] = {
        kind: round(seconds - used.get(kind, 0.0), 2)
        for kind, seconds in tree.cpu_by_name().items()
    }
    figures[name] = measured
    say(f"{name}: {measured}, load {os.getloadavg()[0]:.1f}")


def _append(pair: Pair, payload: Payload, partitions: int, records: int) -> None:
    with pair.source.connect() as connection:
        rounds = batch_rounds(payload, partitions, records)
        connection.fill(_TOPIC, copies(payload, partitions, rounds))


def _copy(file: Path) -> None:
    began = time.monotonic()
    _command("replicate", "--until-caught-up", file=file)
    say(f"copied in {time.monotonic() - began:.1f} s")


def _command(*words: str, file: Path) -> str:
    command = [
        sys.executable,
        "-m",
        "srm.cli.main",
        *words,
        "--config",
        str(file),
        "--flow",
        "A->B",
    ]
    done = subprocess.run(
        command, cwd=PROJECT, capture_output=True, text=True, timeout=_COPY_S, check=False
    )
    if done.returncode:
        raise BenchError(
            f"srm {' '.join(words)} ended with {done.returncode}: {done.stderr[-500:]}"
        )
    return done.stdout


def _write_config(pair: Pair, home: Path) -> Path:
    file = home / "srm.properties"
    file.write_text(
        "clusters = A, B\n"
        f"A.bootstrap.servers = {pair.source.bootstrap}\n"
        f"B.bootstrap.servers = {pair.target.bootstrap}\n"
        "A->B.enabled = true\n"
        f"A->B.topics = {_TOPIC}\n"
        "tasks.max = 2\n"
        "replication.factor = 1\n"
        "offset-syncs.topic.replication.factor = 1\n"
        "checkpoints.topic.replication.factor = 1\n"
        "heartbeats.topic.replication.factor = 1\n"
    )
    return file


if __name__ == "__main__":
    sys.exit(main())
