"""The operator of a move: nothing but the public command line."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.waiting import eventually
from typer.testing import CliRunner

from srm.cli.main import app
from srm.errors import ConflictError, UnavailableError

_GONE = {"gone", "verified", "reported"}
_NOT_HELD = {"planned", "released", None}


class Operator:
    """Starts moves and looks at them."""

    def __init__(self, config: Path, home: Path) -> None:
        self._config = str(config)
        self._home = home

    def ask(self, *arguments: str) -> Any:
        """Run ``srm failover ... --json``, again where a cluster is late; return what it prints."""
        command = ["failover", *arguments, "--config", self._config, "--json"]
        printed: list[str] = []

        def answered() -> bool:
            done = CliRunner().invoke(app, command)
            if isinstance(done.exception, UnavailableError):
                return False
            # A plan that is blocked is printed before it is an error.
            if done.exception and not (isinstance(done.exception, ConflictError) and done.stdout):
                raise done.exception
            printed.append(done.stdout)
            return True

        eventually(answered, "the clusters answer")
        return json.loads(printed[0])

    def step(self, move_id: str) -> str | None:
        """Step of a move, None while it is not known."""
        known: dict[str, str] = self.ask("status")
        return known.get(move_id)

    def reasons(self, move_id: str) -> str:
        """What a move waits for, in one text."""
        status = self.ask("status", move_id)
        return "\n".join([*status["blocking"], *status["unapplied"]])

    def plan(self, source: str, target: str, topic: str, groups: Sequence[str]) -> Any:
        return self.ask("plan", *_named(source, target, topic, groups))

    def run(
        self,
        move_id: str,
        source: str,
        target: str,
        topic: str,
        groups: Sequence[str],
        *choices: str,
    ) -> Move:
        """Start a move, as a process of its own."""
        command = [sys.executable, "-m", "srm.cli.main", "failover", "run", "--move-id", move_id]
        command += [*_named(source, target, topic, groups), *choices]
        command += ["--config", self._config, "--json", "--yes"]
        return Move(self, move_id, command, self._home / move_id)


def _named(source: str, target: str, topic: str, groups: Sequence[str]) -> list[str]:
    named = ["--source", source, "--target", target, "--topic", topic]
    return named + [part for group in groups for part in ("--group", group)]


class Move:
    """A ``srm failover run`` at work; as a context manager it never outlives the test."""

    def __init__(
        self, operator: Operator, move_id: str, command: Sequence[str], output: Path
    ) -> None:
        self._operator = operator
        self.move_id = move_id
        self.began_ms = time.time_ns() // 1_000_000
        self._stdout, self._stderr = output.with_suffix(".json"), output.with_suffix(".log")
        with self._stdout.open("wb") as out, self._stderr.open("wb") as err:
            self._process = subprocess.Popen(command, stdout=out, stderr=err)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End the run with SIGKILL, as a machine that dies; safe to repeat."""
        self._process.kill()
        self._process.wait(60)

    def await_held(self) -> None:
        """Wait until the hold is on: now the operator stops what does not follow by itself."""
        self._await(lambda: self._operator.step(self.move_id) not in _NOT_HELD, "held")

    def await_gone(self) -> None:
        """Wait until clients may be started on the target."""
        self._await(lambda: self._operator.step(self.move_id) in _GONE, "gone")

    def await_reason(self, *words: str) -> str:
        """Wait until one reason has all the words, in the status or at the end; return it."""
        found: list[str] = []
        lines: list[str] = []

        def given() -> bool:
            ended = self._process.poll()
            step = self._operator.step(self.move_id)
            assert step not in _GONE, f"the gate opened without a reason with {words}"
            texts = [self._operator.reasons(self.move_id) if step else "", self._said()]
            lines[:] = [line for text in texts for line in re.split(r"[\n;]", text)]
            found[:] = [line.strip() for line in lines if all(word in line for word in words)]
            assert found or ended is None, f"{self.move_id} ended without {words}: {self._said()}"
            return bool(found)

        try:
            eventually(given, f"a reason with {words}")
        except AssertionError as error:
            step = self._operator.step(self.move_id)
            raise AssertionError(f"{error}; at step {step} it was: {lines}") from None
        return found[0]

    def ended(self) -> tuple[int, str]:
        """Wait for the end of the run; return its exit code and what it said on stderr."""
        eventually(lambda: self._process.poll() is not None, f"{self.move_id} ends", 240.0)
        return self._process.returncode, self._stderr.read_text(encoding="utf-8")

    def interrupted(self) -> tuple[int, str]:
        """End the run as Ctrl-C does; return its exit code and what it said on stderr."""
        self._process.send_signal(signal.SIGINT)
        return self.ended()

    def report(self) -> Any:
        """Wait for the end of the run and return its report; it may have problems.

        A run has an end: clients that start for longer than two minutes, as JVMs on a busy machine,
        are in a later report.
        """
        code, said = self.ended()
        text = self._stdout.read_text(encoding="utf-8")
        assert text, f"{self.move_id} ended with {code}: {said}"
        reports = [json.loads(text)]

        def complete() -> bool:
            groups = reports[-1]["groups"].values()
            if all(group["resumed"] or not group["members_at_hold"] for group in groups):
                return True
            reports.append(self._operator.ask("report", self.move_id))
            return False

        eventually(complete, f"all groups of {self.move_id} are back")
        return reports[-1]

    def _await(self, condition: Any, what: str) -> None:
        def holds() -> bool:
            if condition():
                return True
            code = self._process.poll()
            assert code is None, f"{self.move_id} ended with {code} before {what}: {self._said()}"
            return False

        try:
            eventually(holds, f"{self.move_id} {what}")
        except AssertionError as error:
            known = self._operator.step(self.move_id) is not None
            seen = self._operator.reasons(self.move_id) if known else "it is not even planned"
            raise AssertionError(f"{error}; {seen}") from None

    def _said(self) -> str:
        return self._stderr.read_text(encoding="utf-8")[-3000:]
