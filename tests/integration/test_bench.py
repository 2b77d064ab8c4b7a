"""The benchmark end to end, with hardly any records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from srm.stack.java import QUICK_COMPILER

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


def test_one_case_is_measured_with_both_engines_and_beside_a_socket_copy(tmp_path: Path) -> None:
    arguments = ["--case", "1kb", "--fraction", "0.02", "--out", str(tmp_path)]
    for engine in ("srm", "mm2-default", "socket-copy"):
        arguments += ["--engine", engine]

    done = subprocess.run(
        [sys.executable, "bench/run.py", *arguments],
        cwd=PROJECT,
        # Whether figures come out is what is tested, not what they are.
        env={**os.environ, "JAVA_TOOL_OPTIONS": QUICK_COMPILER},
        capture_output=True,
        text=True,
        timeout=1150,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    results = {path.name: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert set(results) == {"1kb-srm.json", "1kb-mm2-default.json", "1kb-socket-copy.json"}
    for name, result in results.items():
        assert set(result) >= ASKED_FOR, name
        assert result["records"] > 0, name
        assert result["bytes"] == result["records"] * 1000, name
        assert result["wall_seconds"] > 0, name
    summary = json.loads((tmp_path / "summary" / "summary.json").read_text())
    assert [(ratio["case"], ratio["to"]) for ratio in summary["ratios"]] == [("1kb", "mm2-default")]
