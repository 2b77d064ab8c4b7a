"""Run of pytest in which few failures of tests with real processes get a second run.

One to five such failures run once more: alone, in a new process with new brokers, when the machine
is quiet. What passes then is printed as unsteady and appended to ``build/flaky.jsonl``. Any other
failure, or more of them, ends the run as it is: a unit test, a property or a simulated world that
fails once is wrong.

The order of the tests follows from the tree of the commit, so a failure comes back;
``--randomly-seed=N`` plays another one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Final

import pytest
from tests.waiting import cpu_pressure

ROOT: Final = Path(__file__).resolve().parents[1]
LEDGER: Final = ROOT / "build" / "flaky.jsonl"
REAL: Final = frozenset(
    {"airflow", "browser", "faults", "integration", "kafka", "spark", "versions"}
)
"""Markers of tests whose processes, brokers or browsers a busy machine can delay."""
MOST: Final = 5
"""More failures than this are no accident."""
MEND_AT: Final = 3
"""As many entries of one test in the ledger demand a mend, or a quarantine with a date."""
QUIET: Final = 25.0
"""Share of the last ten seconds, in percent, in which a task waited for a core."""
_QUIET_WITHIN_S: Final = 60.0
_OUTCOME: Final = "TEST_OUTCOME_FILE"
"""Names the file into which a run writes its failures and passes."""
_SOME_FAILED: Final = 1


@dataclass(frozen=True)
class Failure:
    """One failed test.

    Args:
        test: its node id.
        real: whether a marker says that it has real processes.
        error: first line of the error.
    """

    test: str
    real: bool
    error: str


def has_real_processes(item: pytest.Item) -> bool:
    """Whether a marker says so: keywords hold the names of folders, too."""
    return not REAL.isdisjoint(marker.name for marker in item.iter_markers())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.user_properties.append(("real", has_real_processes(item)))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the failures of a whole run, and its passes, into the file that the environment names.

    A run that stopped at a failure writes none: other tests may fail, too.
    """
    file = os.environ.get(_OUTCOME)
    if file is None or hasattr(session.config, "workerinput") or session.shouldfail:
        return
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    assert terminal is not None
    stats = terminal.stats
    failures = dict[str, Failure]()
    for report in (*stats.get("failed", []), *stats.get("error", [])):
        real = ("real", True) in map(tuple, getattr(report, "user_properties", ()))
        lines = str(report.longrepr).strip().splitlines()
        error = next((line for line in reversed(lines) if line.startswith("E ")), "")
        crash = getattr(report.longrepr, "reprcrash", None)
        error = crash.message.partition("\n")[0] if crash else error
        failures.setdefault(report.nodeid, Failure(report.nodeid, real, error))
    passed = [report.nodeid for report in stats.get("passed", [])]
    rows = [asdict(failure) for failure in failures.values()]
    Path(file).write_text(json.dumps([rows, passed]))


def run(given: Sequence[str], environ: Mapping[str, str] | None = None) -> int:
    """Run pytest, and once more what may be unsteady; return pytest's exit code.

    Args:
        given: arguments of pytest.
        environ: additions to its environment.
    """
    added = dict(environ or {})
    code, failures, _ = _pytest([f"--randomly-seed={_seed()}", *given], added)
    if code != _SOME_FAILED or not may_be_unsteady(failures):
        return code
    print(f"{len(failures)} failures of tests with real processes: a second run of these, alone")
    _wait_for_quiet()
    code, second, passed = _pytest(["-n", "0", *(failure.test for failure in failures)], added)
    steady = passed - {failure.test for failure in second}
    unsteady = [failure for failure in failures if failure.test in steady]
    if code not in (0, _SOME_FAILED):
        return code
    print(f"unsteady: {len(unsteady)}")
    for line in enter(unsteady, LEDGER):
        print(f"  {line}")
    return code or int(len(unsteady) < len(failures))


def may_be_unsteady(failures: Sequence[Failure]) -> bool:
    """Whether a second run may excuse these failures."""
    return 0 < len(failures) <= MOST and all(failure.real for failure in failures)


def enter(unsteady: Sequence[Failure], ledger: Path) -> list[str]:
    """Append unsteady tests to the ledger; return a line for each, with what it demands."""
    ledger.parent.mkdir(parents=True, exist_ok=True)
    with ledger.open("a", encoding="utf-8") as file:
        for failure in unsteady:
            row = {
                "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                "test": failure.test,
                "error": failure.error,
                "load": round(os.getloadavg()[0], 1),
            }
            file.write(json.dumps(row) + "\n")
    entries = Counter(json.loads(row)["test"] for row in ledger.read_text("utf-8").splitlines())
    lines = []
    for failure in unsteady:
        count = entries[failure.test]
        demand = ": mend it at the root, or quarantine it with a date" * (count >= MEND_AT)
        lines.append(f"{failure.test} ({count} in {ledger.name}{demand}): {failure.error}")
    return lines


def play(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a program with additions to its environment; return its exit code.

    Raises:
        SystemExit: a signal ended the program, and ends this one with all that was to follow.
    """
    sys.stdout.flush()
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environ})
    received = []

    def end(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if number == signal.SIGTERM:  # the terminal interrupts pytest, too
            process.terminate()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    code = process.wait()  # pytest ends brokers and browsers before it exits
    for number, handler in before.items():
        signal.signal(number, handler)
    if received:
        raise SystemExit(128 + received[0])
    return code


def _pytest(
    given: Sequence[str], environ: Mapping[str, str]
) -> tuple[int, list[Failure], set[str]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "outcome.json"
        code = play(
            [sys.executable, "-m", "pytest", "-p", "tests.again", *given],
            {**environ, _OUTCOME: str(file)},
        )
        rows, passed = json.loads(file.read_text("utf-8")) if file.exists() else ([], [])
    return code, [Failure(**row) for row in rows], set(passed)


def _seed() -> int:
    tree = subprocess.run(
        ["git", "rev-parse", "HEAD^{tree}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return int(tree.stdout[:8] or "1", 16)


def _wait_for_quiet() -> None:
    began = time.monotonic()
    while cpu_pressure().recent > QUIET and time.monotonic() - began < _QUIET_WITHIN_S:
        time.sleep(1.0)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
