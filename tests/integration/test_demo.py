"""The demo as a user runs it, only smaller: everything real, there and back, and clean."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from srm_lab.demo.record import read_record
from srm_lab.processes import end_processes, marked_processes
from srm_lab.stack.process import HOME_MARK

pytestmark = pytest.mark.integration

RECORDS = 2_000
GROUPS = {"ledger", "fraud", "analytics"}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    # A demo that hangs must not leave brokers behind; there is none of these after a good one.
    end_processes(marked_processes(HOME_MARK, str(tmp_path / "stack")), timeout=5)


def demo(home: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "srm.cli.main", "demo", "--home", str(home), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.timeout(1800)
def test_each_group_processes_each_payment_once_across_failover_and_failback(home: Path) -> None:
    running = demo(home, "--records", str(RECORDS), "--json")
    out, err = running.communicate()

    assert running.returncode == 0, err
    report = json.loads((home / "report.json").read_bytes())
    assert json.loads(out) == report
    assert report["ok"], report["problems"]
    assert report["produced"] > RECORDS
    for group in GROUPS:
        found = report["groups"][group]
        assert (found["processed"], found["skipped"], found["re_read"]) == (
            report["produced"],
            0,
            0,
        )
    assert [(m["source"], m["target"]) for m in report["moves"]] == [("P", "B"), ("B", "P")]
    for move in report["moves"]:
        assert move["rpo_records"] == 0
        assert {(g["skipped"], g["re_read"]) for g in move["groups"].values()} == {(0, 0)}
    assert report["moves"][0]["groups"]["analytics"]["lag_at_hold"] >= RECORDS // 2
    assert "<svg" in (home / "report.html").read_text()

    # The same once more, without any of the demo's own arithmetic.
    records = home / "stack" / "records"
    written = sorted(e.payment for p in records.glob("producer-*.tsv") for e in read_record(p))
    for group in GROUPS:
        entries = read_record(records / f"application-{group}.tsv")
        assert sorted(e.payment for e in entries) == written
        if group == "analytics":  # far behind: it took P's payments along, as their copies on B
            assert "P.Payments" in {e.topic for e in entries if e.cluster == "B"}
    assert marked_processes(HOME_MARK, str(home / "stack")) == []


@pytest.mark.timeout(600)
def test_an_interrupted_demo_leaves_nothing_running(home: Path) -> None:
    running = demo(home, "--records", "2000")
    log = home / "stack" / "logs" / "application-ledger.log"
    deadline = time.monotonic() + 400
    while not log.exists() and time.monotonic() < deadline:
        assert running.poll() is None
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=150)

    assert log.exists()
    assert running.returncode != 0
    assert marked_processes(HOME_MARK, str(home / "stack")) == []
    assert not psutil.pid_exists(running.pid)
