"""Few failures of tests with real processes get a second run; any other failure is final."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests import again
from tests.again import Failure, enter, may_be_unsteady, run

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


@pytest.mark.parametrize(
    ("more", "code", "unsteady"),
    [("", 0, 1), (BROKEN, 1, 1), (UNIT, 1, None)],
    ids=["unsteady", "one of two is broken", "a unit test is wrong"],
)
def test_a_run_ends_well_only_if_each_failure_was_unsteady(
    more: str,
    code: int,
    unsteady: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "test_case.py"
    file.write_text(TEST.format(flag=str(tmp_path / "flag"), more=more))
    project = {"PYTHONPATH": str(again.ROOT)}
    monkeypatch.setattr(again, "ROOT", tmp_path)
    monkeypatch.setattr(again, "LEDGER", tmp_path / "flaky.jsonl")
    monkeypatch.setattr(again, "QUIET", 101.0)

    assert run(["-q", file.name], project) == code

    printed = capsys.readouterr().out
    assert (f"unsteady: {unsteady}" in printed) == (unsteady is not None)
