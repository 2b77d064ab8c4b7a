"""The client programs as processes: none of them knows anything of srm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.integration.blackbox.audit import Event, read_events

from srm_lab.stack.jars import cache_folder, fetch, kafka_class_path, maven_url, parse_lock
from srm_lab.stack.java import find_java
from srm_lab.stack.kafka import quick_start

HERE = Path(__file__).parent
CLIENTS = HERE / "clients"
STREAMS_LOCK = HERE / "kafka-streams-4.3.1.lock"
_STOP_S = 120.0
_ENDED_BY_SIGTERM = {
    0,
    128 + signal.SIGTERM,  # Java
    -signal.SIGTERM,  # Python, before it has begun to listen: it has not done anything yet
}


def compile_clients(folder: Path) -> str:
    """Compile the Java clients; return the class path they run with."""
    streams = fetch(
        parse_lock(STREAMS_LOCK.read_text(encoding="utf-8")),
        cache_folder() / "kafka-streams-4.3.1",
        maven_url(),
    )
    jars = os.pathsep.join([kafka_class_path(), *map(str, streams)])
    java = str(find_java().program)
    sources = sorted(map(str, CLIENTS.glob("*.java")))
    compiler = ["-m", "jdk.compiler/com.sun.tools.javac.Main", "-d", str(folder), "-cp", jars]
    subprocess.run([java, *compiler, *sources], check=True)
    return os.pathsep.join([jars, str(folder)])


def python(program: str, **options: object) -> list[str]:
    """Command line of a Python client; None leaves an option out, a list repeats it."""
    command = [sys.executable, str(CLIENTS / program)]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            command.append(option)
        elif isinstance(value, list):
            command += [part for one in value for part in (option, str(one))]
        elif value is not None and value is not False:
            command += [option, str(value)]
    return command


def java(class_path: str, *arguments: str, **given: object) -> list[str]:
    """Command line of a Java client."""
    named = [f"{name}={value}" for name, value in given.items() if value is not None]
    return [
        str(find_java().program),
        "-Xmx160m",
        *quick_start(),
        "-cp",
        class_path,
        *arguments,
        *named,
    ]


@dataclass(frozen=True)
class Start:
    """What a client is started with: the cluster, and how often it was started before."""

    alias: str
    bootstrap: str
    record: Path
    number: int


class Client:
    """One client program, started on one cluster after the other; its record goes on."""

    def __init__(
        self, name: str, home: Path, command: Callable[[Start], Sequence[str]], group: str = ""
    ) -> None:
        self.name, self.group = name, group
        self.record = home / f"{name}.tsv"
        self._log = home / f"{name}.log"
        # Its own: a line of the log may come between a printed one and its end.
        self._printed = home / f"{name}.out"
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._asked_to_stop = False
        self._starts = 0
        self._before = 0

    @property
    def events(self) -> list[Event]:
        """Everything the client has written down, on all clusters."""
        return read_events(self.record)

    @property
    def here(self) -> list[Event]:
        """What it has written down since it was started last."""
        return self.events[self._before :]

    def count(self, kind: str) -> int:
        """Number of events of a kind since the last start; fails if the client has died."""
        self.alive()
        return sum(event.kind == kind for event in self.here)

    def start(self, alias: str, bootstrap: str) -> None:
        assert self._process is None, f"{self.name} runs already"
        self._before = len(self.events)
        command = self._command(Start(alias, bootstrap, self.record, self._starts))
        self._starts += 1
        self._asked_to_stop = False
        with self._printed.open("ab") as printed, self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=printed, stderr=log, stdin=subprocess.DEVNULL
            )

    def alive(self) -> None:
        """Fail with the end of the log unless the client still runs, or ended well by itself."""
        code = 0 if self._process is None else self._process.poll()
        assert code in {None, 0}, f"{self.name} ended with {code}: {self._tail()}"

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def request_stop(self) -> None:
        """Ask for an orderly end, once: a second SIGTERM would be the end of one that ends."""
        if self._process is not None and not self._asked_to_stop:
            self._asked_to_stop = True
            self._process.terminate()

    def stop(self) -> None:
        """End the client in order, as a deployment does, and wait for it."""
        self.request_stop()
        self.finish()

    def finish(self) -> None:
        """Wait for the end of a client that was asked to stop, or that ends by itself."""
        if self._process is None:
            return
        try:
            code = self._process.wait(_STOP_S)
        finally:
            self.kill()
        assert code in _ENDED_BY_SIGTERM, f"{self.name} ended with {code}: {self._tail()}"

    def kill(self) -> None:
        """End the client at once; safe to repeat."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None

    def _tail(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-2000:]
