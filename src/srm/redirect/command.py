"""Redirector that runs a command at each step of a move."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Final

from srm.clock import now_s
from srm.domain.moves.routing import RedirectOrder
from srm.engine.ports import CallResult
from srm.redirect.attempts import RefusedError, TryAgainError, attempt
from srm.telemetry import trace_environment

TRY_AGAIN: Final = 75
"""EX_TEMPFAIL of sysexits.h."""

DEFAULT_GRACE_S: Final = 5.0
"""Seconds between SIGTERM and SIGKILL for a command."""

_LONGEST: Final = 100_000  # bytes: Linux starts no program with a variable of 128 KiB
_POLL_S: Final = 0.05
_SHOWN: Final = 200
_TAIL: Final = 4096


def environment(order: RedirectOrder, file: Path) -> dict[str, str]:
    """Return the variables a command gets besides srm's own; long lists are only in the file."""
    found = {
        "SRM_STEP": order.step,
        "SRM_MOVE_ID": order.move_id,
        "SRM_ATTEMPT": str(order.attempt),
        "SRM_ORDER": str(order.order),
        "SRM_KEY": order.key,
        "SRM_OPERATION": order.operation,
        "SRM_MODE": order.mode,
        "SRM_SOURCE": order.source.alias,
        "SRM_SOURCE_SERVERS": order.source.bootstrap_servers,
        "SRM_TARGET": order.target.alias,
        "SRM_TARGET_SERVERS": order.target.bootstrap_servers,
        "SRM_TOPICS": ",".join(order.topics),
        "SRM_GROUPS": ",".join(order.groups),
        "SRM_ORDER_FILE": str(file),
    }
    return {name: value for name, value in found.items() if len(value.encode()) <= _LONGEST}


class Command:
    """Runs a program with an order (implements :class:`srm.engine.ports.Caller`).

    The order is in the environment, and as JSON on the standard input and in a file. Exit code 0
    is success, 75 requests a retry, any other is a refusal. The command runs in its own process
    group, which is ended when the time is over. Background processes of a command that has ended
    are not touched.
    """

    def __init__(
        self, command: Sequence[str], limit_s: float, grace_s: float = DEFAULT_GRACE_S
    ) -> None:
        self._command = tuple(command)
        self._limit_s = limit_s
        self._grace_s = grace_s

    @property
    def limit_s(self) -> float:
        """Longest time of a call in seconds, all attempts included."""
        return self._limit_s + self._grace_s

    def call(self, order: RedirectOrder, cancelled: threading.Event) -> CallResult:
        """Run the command until it succeeds, refuses, or the time is over."""
        end = now_s() + self._limit_s
        with tempfile.TemporaryDirectory(prefix="srm-") as home:
            file = Path(home, "order.json")
            file.write_bytes(order.value())
            environ = {**os.environ, **trace_environment(), **environment(order, file)}
            once = partial(self._run, environ, file, end, cancelled)
            return attempt(once, self._limit_s, cancelled)

    def _run(
        self, environ: Mapping[str, str], file: Path, end: float, cancelled: threading.Event
    ) -> str:
        """Run it once and return its last line."""
        name = Path(self._command[0]).name
        # Files, not pipes: its background processes would keep pipes open.
        with file.open("rb") as order, tempfile.TemporaryFile() as output:
            try:
                process = subprocess.Popen(
                    self._command,
                    stdin=order,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environ,
                    start_new_session=True,
                )
            except OSError as error:
                raise RefusedError(f"{name} cannot be started: {error}") from error
            ended = _wait(process, end, cancelled)
            if not ended:
                _end_group(process, self._grace_s)
            said = _last_line(output)
        if not ended:
            why = "was cancelled" if cancelled.is_set() else "did not end in time, it was killed"
            raise RefusedError(f"{name} {why}{said and ': '}{said}")
        if process.returncode == 0:
            return f"{name} exited with 0{said and ': '}{said}"
        text = f"{name} exited with {process.returncode}{said and ': '}{said}"
        raise TryAgainError(text) if process.returncode == TRY_AGAIN else RefusedError(text)


def _wait(process: subprocess.Popen[bytes], end: float, cancelled: threading.Event) -> bool:
    while not cancelled.is_set() and now_s() < end:
        try:
            process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            continue
        return True
    return process.poll() is not None


def _end_group(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """End the command's process group with SIGTERM, then SIGKILL."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
        os.killpg(process.pid, signal.SIGKILL)  # the processes it started and left
    process.wait()


def _last_line(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _TAIL))
    lines = output.read().decode(errors="replace").strip().splitlines()
    return "".join(c for c in lines[-1][:_SHOWN] if c.isprintable()) if lines else ""
