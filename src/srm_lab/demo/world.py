"""Everything that runs during a demo, and waiting for something to become true in it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from srm.config.loader import load_config
from srm.config.model import Config
from srm.errors import StackError, UnavailableError
from srm_lab.demo.airflow_api import AirflowApi, RunView
from srm_lab.demo.application import SUMMARY_SUFFIX
from srm_lab.demo.display import Display
from srm_lab.demo.record import PaymentEntry, RecordReader
from srm_lab.stack.process import HOME_MARK, ManagedProcess, ProcessSpec
from srm_lab.stack.stack import Stack

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

        StackError: it cannot be started.
        """
        environ = {**os.environ, HOME_MARK: str(self._stack.absolute())}
        self._process.start(
            ProcessSpec(self.name, self._command, environ, self._process.log, self._stack)
        )

    def look(self) -> None:
        """Read what is new in the record.

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


# Each look queries Airflow or both clusters, which have two cores for everything.
_TICK_S: Final = 1.0


@dataclass
class DemoWorld:
    """The stack with the programs of the demo.

    ``producers`` may be several that came one after the other; only running ones are watched.
    """

    stack: Stack
    display: Display
    producers: list[DemoProgram] = field(default_factory=list)
    applications: dict[str, DemoProgram] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)
    _pause: threading.Event = field(default_factory=threading.Event)

    @property
    def home(self) -> Path:
        """Folder of the stack."""
        return self.stack.home.path

    @property
    def config(self) -> Config:
        """The stack's configuration."""
        return load_config(self.stack.config_path)

    @property
    def acks(self) -> list[PaymentEntry]:
        """Everything the clusters have acknowledged to the producers."""
        return [entry for producer in self.producers for entry in producer.entries]

    @property
    def total_acks(self) -> int:
        """Number of acknowledged payments."""
        return sum(producer.done for producer in self.producers)

    def behind(self, group: str) -> int:
        """Payments an application has still to process."""
        # It may have processed some whose acknowledgement is on its way to the producer's record.
        return max(0, self.total_acks - self.applications[group].done)

    def start(self, *programs: DemoProgram) -> None:
        """Start programs; call it after they were made known."""
        for program in programs:
            program.start()

    def look(self) -> None:
        """Read the records and make sure that everything still runs.

        StackError: a program has ended.
        """
        for program in (*self.producers, *self.applications.values()):
            if program.name not in self._ended:
                program.look()
        self.display.count(self.counts())

    def counts(self) -> str:
        """Sum up how far everybody is."""
        parts = [f"{self.total_acks:,} payments"]
        parts += [
            f"{group} {program.done:,} on {program.cluster or '-'} ({self.behind(group):,} behind)"
            for group, program in self.applications.items()
        ]
        return " · ".join(parts)

    def wait(self, condition: Callable[[], str | None], seconds: float, what: str) -> None:
        """Look again and again until ``condition`` returns None; what it returns else is shown.

        StackError: a program has ended, or the time is up.
        """
        deadline = time.monotonic() + seconds
        while True:
            self.look()
            try:
                missing = condition()
            except UnavailableError as error:
                # A busy machine may be late with an answer; the deadline decides.
                missing = str(error)
            if missing is None:
                return
            self.display.say(missing)
            if time.monotonic() > deadline:
                raise StackError(f"{what} did not happen within {seconds:.0f} s: {missing}")
            self._pause.wait(_TICK_S)

    def stop_producers(self) -> None:
        """End all producers in an orderly way; their records are complete then."""
        stop_all(self.producers)
        self._ended.update(program.name for program in self.producers)

    def stop_applications(self) -> None:
        """End all applications in an orderly way."""
        stop_all(list(self.applications.values()))
        self._ended.update(program.name for program in self.applications.values())

    def stop_programs(self) -> None:
        """End whatever program still runs."""
        stop_all([*self.producers, *self.applications.values()])


def follow_run(world: DemoWorld, api: AirflowApi, dag: str, run: str, seconds: float) -> None:
    """Show a DAG run task by task until it has ended well.

    StackError: it failed, with the cause from its log, or the time is up.
    """

    def condition() -> str | None:
        view = api.run(dag, run)
        if view.over:
            if view.state == "failed":
                raise StackError(f"{dag} failed: {api.failure(dag, run)}")
            return None
        return _now_at(api, view)

    world.wait(condition, seconds, f"the end of {dag}")


def _now_at(api: AirflowApi, view: RunView) -> str:
    if view.state == "queued":
        return f"{view.dag} is queued"
    tasks = ", ".join(f"{task} {view.tasks[task]}" for task in view.current)
    text = f"{view.dag}: {tasks or 'between two tasks'}"
    if "wait" not in view.current:
        return text
    # The wait begins on a worker, which has a state store, and continues in the triggerer.
    where = (view.dag, view.run, "wait", "progress")
    deferred = view.tasks["wait"] == "deferred"
    status = api.xcom(*where) if deferred else api.task_state(*where)
    return f"{text}, {move_text(status)}" if status else text


def move_text(status: Mapping[str, Any]) -> str:
    """Say how far a waiting move is, from the summary that its task publishes."""
    eta = status["eta_seconds"]
    soon = f", about {eta:.0f} s" if eta else ""
    return (
        f"{status['remaining_records']:,} records to copy{soon}, "
        f"{status['synchronised']} of {status['groups']} groups synchronised"
    )
