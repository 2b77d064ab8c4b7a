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
_FAILURES: Final = "TEST_FAILURES_FILE"
"""Names the file into which a run writes its failures."""
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


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Write the failures of a run into the file that the environment names."""
    file = os.environ.get(_FAILURES)
    if file is None or hasattr(config, "workerinput"):
        return
    failures = {}
    for report in (
        *terminalreporter.stats.get("failed", []),
        *terminalreporter.stats.get("error", []),
    ):
        real = not REAL.isdisjoint(getattr(report, "keywords", ()))
        lines = str(report.longrepr).strip().splitlines()
        error = next((line for line in reversed(lines) if line.startswith("E ")), "")
        crash = getattr(report.longrepr, "reprcrash", None)
        error = crash.message.partition("\n")[0] if crash else error
        failures.setdefault(report.nodeid, Failure(report.nodeid, real, error))
    Path(file).write_text(json.dumps([asdict(failure) for failure in failures.values()]))


def run(given: Sequence[str], environ: Mapping[str, str] | None = None) -> int:
    """Run pytest, and once more what may be unsteady; return pytest's exit code.

    Args:
        given: arguments of pytest.
        environ: additions to its environment.
    """
    added = dict(environ or {})
    code, failures = _pytest([f"--randomly-seed={_seed()}", *given], added)
    if code != _SOME_FAILED or not may_be_unsteady(failures):
        return code
    print(f"{len(failures)} failures of tests with real processes: a second run of these, alone")
    _wait_for_quiet()
    code, second = _pytest(["-n", "0", *(failure.test for failure in failures)], added)
    failed = {failure.test for failure in second}
    unsteady = [failure for failure in failures if failure.test not in failed]
    if code not in (0, _SOME_FAILED):
        return code
    print(f"unsteady: {len(unsteady)}")
    for line in enter(unsteady, LEDGER):
        print(f"  {line}")
    return code


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


def _pytest(given: Sequence[str], environ: Mapping[str, str]) -> tuple[int, list[Failure]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "failures.json"
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "tests.again", *given],
            cwd=ROOT,
            env={**os.environ, **environ, _FAILURES: str(file)},
        )
        # The terminal interrupts pytest, too. It ends brokers and browsers before it exits.
        interrupt = signal.signal(signal.SIGINT, lambda *_: None)
        end = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        code = process.wait()
        signal.signal(signal.SIGINT, interrupt)
        signal.signal(signal.SIGTERM, end)
        rows = json.loads(file.read_text("utf-8")) if file.exists() else []
    return code, [Failure(**row) for row in rows]


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
