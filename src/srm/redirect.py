"""Redirectors that srm calls: a webhook and a command."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from srm.clock import now_s, pauses
from srm.config.model import RedirectSettings
from srm.domain.moves.routing import RedirectKind, RedirectOrder
from srm.engine.ports import Caller, CallResult
from srm.http_post import PostError, post
from srm.logs import printable
from srm.telemetry import trace_environment, trace_headers

_FIRST_PAUSE_S: Final = 0.3
_LONGEST_PAUSE_S: Final = 5.0


class TryAgainError(Exception):
    """This attempt failed and may be retried; the message has the reason."""


class RefusedError(Exception):
    """The receiver refused; a retry would get the same answer."""


def attempt(once: Callable[[], str], limit_s: float, cancelled: threading.Event) -> CallResult:
    """Call until it succeeds, refuses or is ``cancelled``; no attempt starts after ``limit_s``."""
    deadline = time.monotonic() + limit_s
    pause_s = pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
    tries = 0
    while True:
        tries += 1
        try:
            return CallResult(done=True, said=once())
        except RefusedError as error:
            return CallResult(done=False, said=str(error))
        except TryAgainError as error:
            if time.monotonic() >= deadline or cancelled.is_set():
                return CallResult(done=False, said=f"{error}; tried {tries} times")
        cancelled.wait(random.uniform(0, next(pause_s)))  # noqa: S311 - no secret


TRY_AGAIN: Final = 75
"""EX_TEMPFAIL of sysexits.h."""

DEFAULT_GRACE_S: Final = 5.0  # between SIGTERM and SIGKILL
_LONGEST: Final = 100_000  # bytes: Linux starts no program with a variable of 128 KiB
_POLL_S: Final = 0.05
_SHOWN: Final = 200


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
        "SRM_TOPICS": json.dumps(order.topics),
        "SRM_GROUPS": json.dumps(order.groups),
        "SRM_ORDER_FILE": str(file),
    }
    return {name: value for name, value in found.items() if len(value.encode()) <= _LONGEST}


@dataclass(frozen=True)
class Command:
    """Runs a program with an order, in the environment and as JSON on standard input and in a file.

    Exit code 0 is success, 75 requests a retry, any other is a refusal. The command runs in its own
    process group, which is ended when the time is over.
    """

    command: Sequence[str]
    time_s: float
    grace_s: float = DEFAULT_GRACE_S

    @property
    def limit_s(self) -> float:
        return self.time_s + self.grace_s

    def call(self, order: RedirectOrder, cancelled: threading.Event) -> CallResult:
        end = now_s() + self.time_s
        with tempfile.TemporaryDirectory(prefix="srm-") as home:
            file = Path(home, "order.json")
            file.write_bytes(order.value())
            environ = {**os.environ, **trace_environment(), **environment(order, file)}
            once = partial(self._run, environ, file, end, cancelled)
            return attempt(once, self.time_s, cancelled)

    def _run(
        self, environ: Mapping[str, str], file: Path, end: float, cancelled: threading.Event
    ) -> str:
        name = Path(self.command[0]).name
        # Files, not pipes: its background processes would keep pipes open.
        with file.open("rb") as order, tempfile.TemporaryFile() as output:
            try:
                process = subprocess.Popen(
                    self.command,
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
                _end_group(process, self.grace_s)
            output.seek(max(0, output.seek(0, os.SEEK_END) - 4096))
            said = _printable_line(output.read(), -1)
        if ended:
            why = f"exited with {process.returncode}"
        else:
            why = "was cancelled" if cancelled.is_set() else "did not end in time, it was killed"
        text = f"{name} {why}{said and ': '}{said}"
        if ended and process.returncode == 0:
            return text
        again = ended and process.returncode == TRY_AGAIN
        raise TryAgainError(text) if again else RefusedError(text)


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


def _printable_line(output: bytes, number: int) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return printable(lines[number])[:_SHOWN] if lines else ""


_ONE_TRY_S: Final = 10.0
_SUCCESS: Final = range(200, 300)
_AGAIN: Final = frozenset({408, 425, 429})
_SERVER_ERROR: Final = 500


def sign(secret: str, timestamp: str, body: bytes) -> str:
    signed = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
    return f"sha256={signed.hexdigest()}"


@dataclass(frozen=True, repr=False)
class Webhook:
    """Posts orders as JSON; 408, 425, 429, 5xx and silence are retried. Shows only its host."""

    url: str
    secret: str
    time_s: float

    @property
    def limit_s(self) -> float:
        return self.time_s + _ONE_TRY_S

    def call(self, order: RedirectOrder, cancelled: threading.Event) -> CallResult:
        return attempt(lambda: self._post(order), self.time_s, cancelled)

    def _post(self, order: RedirectOrder) -> str:
        host = urlsplit(self.url).hostname or ""
        body, timestamp = order.value(), str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": quote(order.key),
            "X-Srm-Timestamp": timestamp,
            "X-Srm-Signature": sign(self.secret, timestamp, body),
            **trace_headers(),
        }
        timeout_s = min(_ONE_TRY_S, self.time_s)
        try:
            status, read = post(self.url, body, headers, timeout_s=timeout_s, most=4096)
        except PostError as error:
            # The text of a ValueError may hold the address.
            why = "invalid address" if isinstance(error.cause, ValueError) else str(error)
            raise TryAgainError(f"{host} does not answer: {why}") from None
        text = _printable_line(read, 0)
        said = f"{host} answered {status}{f': {text}' if text else ''}"
        if status in _SUCCESS:
            return said
        if status in _AGAIN or status >= _SERVER_ERROR:
            raise TryAgainError(said)
        raise RefusedError(said)


def callers(settings: RedirectSettings) -> Mapping[RedirectKind, Caller]:
    """Return the redirectors with complete settings."""
    found: dict[RedirectKind, Caller] = {}
    if settings.webhook_url and settings.webhook_secret:
        found["webhook"] = Webhook(
            settings.webhook_url.reveal(),
            settings.webhook_secret.reveal(),
            settings.webhook_timeout.total_seconds(),
        )
    if settings.command:
        found["command"] = Command(settings.command, settings.command_timeout.total_seconds())
    return found
