"""The producers and applications of the demo as processes, and what they have recorded so far."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from srm.errors import StackError
from srm_lab.demo.application import SUMMARY_SUFFIX
from srm_lab.demo.record import PaymentEntry, RecordReader
from srm_lab.stack.process import HOME_MARK, ManagedProcess, ProcessSpec

_STOP_S: Final = 60.0
"""A producer that is killed before it has heard of its last payments makes the demo fail."""


class DemoProgram:
    """One process, found again by its stack's ``down``, with the record it keeps."""

    def __init__(self, name: str, module: str, arguments: Sequence[str], stack: Path) -> None:
        self.name = name
        self.entries: list[PaymentEntry] = []
        self.by_cluster: Counter[str] = Counter()
        record = stack / "records" / f"{name}.tsv"
        self._reader = RecordReader(record)
        self._summary = record.with_suffix(SUMMARY_SUFFIX)
        self._command = [sys.executable, "-m", module, *arguments, "--record", str(record)]
        self._stack = stack
        self._process = ManagedProcess(
            name, stack / "logs" / f"{name}.log", stack / "run" / f"{name}.pid"
        )

    def start(self) -> None:
        """Start the process.

        Raises:
            StackError: it cannot be started.
        """
        environ = {**os.environ, HOME_MARK: str(self._stack.absolute())}
        self._process.start(
            ProcessSpec(self.name, self._command, environ, self._process.log, self._stack)
        )

    def look(self) -> None:
        """Read what is new in the record.

        Raises:
            StackError: the process has ended by itself.
        """
        self.read()
        if not self._process.running:
            raise StackError(
                f"{self.name} ended by itself: {self._process.last_words()} "
                f"(see {self._process.log})"
            )

    def read(self) -> None:
        """Read what is new in the record, whether the process lives or not."""
        for entry in self._reader.new():
            self.entries.append(entry)
            self.by_cluster[entry.cluster] += 1

    def stop(self) -> None:
        """End the process in an orderly way, and read the rest of its record."""
        self._process.stop(_STOP_S)
        self.read()

    @property
    def done(self) -> int:
        """Number of recorded payments."""
        return len(self.entries)

    @property
    def summary(self) -> str:
        """Summary an application wrote at its end, empty if none."""
        return self._summary.read_text(encoding="utf-8") if self._summary.exists() else ""

    @property
    def cluster(self) -> str:
        """Cluster of the last recorded payment."""
        return self.entries[-1].cluster if self.entries else ""


def stop_all(programs: Sequence[DemoProgram]) -> None:
    """End processes side by side."""
    if programs:
        with ThreadPoolExecutor(len(programs)) as pool:
            list(pool.map(DemoProgram.stop, programs))


def producer(
    name: str, home: str, initial: int, rate: float, config: Path, stack: Path
) -> DemoProgram:
    """Describe a producer of payments."""
    arguments = ["--config", str(config), "--name", name, "--home", home]
    arguments += ["--initial", str(initial), "--rate", f"{rate:g}"]
    return DemoProgram(f"producer-{name}", "srm_lab.demo.producer", arguments, stack)


def application(group: str, pace: str, delay: float, config: Path, stack: Path) -> DemoProgram:
    """Describe an application."""
    arguments = ["--config", str(config), "--group", group, "--pace", pace, "--delay", f"{delay:g}"]
    return DemoProgram(f"application-{group}", "srm_lab.demo.application", arguments, stack)
