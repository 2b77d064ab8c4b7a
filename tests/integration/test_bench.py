"""The benchmark end to end, with hardly any records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench import fleet, fleet_cost
from bench.results import load_all

from srm_lab.stack.kafka import quick_start

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.timeout(1200),
]

PROJECT = Path(__file__).resolve().parents[2]
ASKED_FOR = {
    "case",
    "engine",
    "records",
    "bytes",
    "wall_seconds",
    "cpu_seconds",
    "records_per_second",
    "records_per_cpu_second",
    "megabytes_per_cpu_second",
    "latency_ms",
}


def run_bench(out: Path, *arguments: str) -> None:
    # Whether figures come out is what is tested, not what they are; MirrorMaker 2 has a collector.
    quick = " ".join(option for option in quick_start() if "GC" not in option)
    done = subprocess.run(
        [sys.executable, "bench/run.py", *arguments, "--out", str(out)],
        cwd=PROJECT,
        env={**os.environ, "JAVA_TOOL_OPTIONS": quick},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_case_is_measured_with_both_engines_and_beside_a_socket_copy(tmp_path: Path) -> None:
    arguments = ["--case", "1kb", "--fraction", "0.02"]
    for engine in ("srm", "mm2-default", "socket-copy"):
        arguments += ["--engine", engine]

    run_bench(tmp_path, *arguments)

    results = {path.name: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert set(results) == {"1kb-srm.json", "1kb-mm2-default.json", "1kb-socket-copy.json"}
    for name, result in results.items():
        assert set(result) >= ASKED_FOR, name
        assert result["records"] > 0, name
        assert result["bytes"] == result["records"] * 1000, name
        assert result["wall_seconds"] > 0, name
    summary = json.loads((tmp_path / "summary" / "summary.json").read_text())
    assert [(ratio["case"], ratio["to"]) for ratio in summary["ratios"]] == [("1kb", "mm2-default")]


def test_a_fleet_is_measured_with_more_and_more_partitions(tmp_path: Path) -> None:
    run_bench(tmp_path, "--fleet", "--fraction", "0.001", "--engine", "srm")

    results = load_all(tmp_path)
    assert {result.case for result in results} == {
        fleet.name(size, partitions) for size in fleet.RATES for partitions in (1, 10)
    }
    for result in results:
        assert result.cpu_seconds > 0, result.case
        assert result.details["sent_batches"] > 0, result.case
    assert len(fleet_cost.rows(results)) == len(results)
