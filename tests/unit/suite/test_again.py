"""Few failures of tests with real processes get a second run; any other failure is final."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests import again
from tests.again import Failure, enter, may_be_unsteady, run
from tests.waiting import eventually

REAL = Failure("tests/integration/test_x.py::test_a", real=True, error="E no broker")
PURE = Failure("tests/unit/test_x.py::test_a", real=False, error="E 1 == 2")


def test_up_to_five_failures_with_real_processes_may_be_unsteady() -> None:
    assert may_be_unsteady([REAL] * 5)
    assert not may_be_unsteady([REAL] * 6)
    assert not may_be_unsteady([REAL, PURE])
    assert not may_be_unsteady([])


def test_the_third_entry_of_a_test_demands_a_mend(tmp_path: Path) -> None:
    ledger = tmp_path / "build" / "flaky.jsonl"

    lines = [enter([REAL], ledger)[0] for _ in range(3)]

    assert ["mend it" in line for line in lines] == [False, False, True]
    assert [json.loads(row)["test"] for row in ledger.read_text().splitlines()] == [REAL.test] * 3


TEST = """
from pathlib import Path
import pytest

@pytest.mark.kafka
def test_passes_the_second_time(tmp_path):
    flag = Path({flag!r})
    first = not flag.exists()
    flag.touch()
    assert not first, "the first time"

{more}
"""
UNIT = """
def test_is_wrong():
    assert 1 == 2
"""
BROKEN = """
@pytest.mark.kafka
def test_fails_each_time():
    assert 1 == 2
"""
SKIPS = """
@pytest.mark.kafka
def test_skips_the_second_time(tmp_path):
    flag = Path({flag!r} + "2")
    if flag.exists():
        pytest.skip("no broker")
    flag.touch()
    assert 1 == 2
"""


@pytest.mark.parametrize(
    ("more", "given", "code", "unsteady"),
    [
        ("", [], 0, 1),
        (BROKEN, [], 1, 1),
        (SKIPS, ["-n", "1"], 1, 1),
        (UNIT, [], 1, None),
        ("", ["-x"], 1, None),
    ],
    ids=[
        "unsteady",
        "one of two is broken",
        "one of two is skipped",
        "a unit test below a folder named after a marker is wrong",
        "tests after the failure have not run",
    ],
)
def test_a_run_ends_well_only_if_each_failure_was_unsteady(
    more: str,
    given: list[str],
    code: int,
    unsteady: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "kafka" / "test_case.py"
    file.parent.mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = kafka")
    flag = str(tmp_path / "flag")
    file.write_text(TEST.format(flag=flag, more=more.format(flag=flag)))
    options = f"--basetemp={tmp_path / 'runs'}"  # the default deletes the folders of other runs
    project = {"PYTHONPATH": str(again.ROOT), "PYTEST_ADDOPTS": f"{options} -p no:schemathesis"}
    if not given:  # the plugins take seconds to import
        project["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        project["PYTEST_ADDOPTS"] = f"{options} -p pytest_randomly -p xdist.plugin"
    monkeypatch.setattr(again, "ROOT", tmp_path)
    monkeypatch.setattr(again, "LEDGER", tmp_path / "flaky.jsonl")
    monkeypatch.setattr(again, "QUIET", 101.0)

    assert run(["-q", *given, "kafka/test_case.py"], project) == code

    printed = capsys.readouterr().out
    assert (f"unsteady: {unsteady}" in printed) == (unsteady is not None)


PROGRAM = """
import sys, time
from tests.again import play
from tests.burners import burners

with burners(1):
    play([sys.executable, "-c", {child!r}], {{}})
print("not reached")
"""
CHILD = """
import os, time
print(os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_busy_loop_outlives_a_run_that_a_signal_ends(number: signal.Signals) -> None:
    program = [sys.executable, "-c", PROGRAM.format(child=CHILD)]
    with subprocess.Popen(program, cwd=again.ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        children = psutil.Process(process.pid).children()
        process.send_signal(number)
        if number == signal.SIGKILL:
            os.kill(child, number)
        printed = process.stdout.read()

    eventually(lambda: not any(child.is_running() for child in children), "the children end")
    assert printed == ""
    assert process.returncode == (128 + number if number == signal.SIGTERM else -number)
