"""Engines under comparison: configuration, start, watch and end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from bench.clusters import PROJECT
from bench.errors import BenchError
from bench.tree import Tree
from srm_lab.stack.jars import kafka_class_path
from srm_lab.stack.java import find_java

PROVENANCE_KEY: Final = "provenance.header.enable"
TASKS: Final = 2
_STOP_S: Final = 15.0
_KIB, _MIB = 1024, 1024 * 1024

# The options of Kafka's start scripts, but a heap of 3 GB instead of 2.
_JAVA_OPTIONS: Final = (
    "-Xms256m",
    "-Xmx3g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

_LOG4J: Final = """\
<Configuration status="ERROR">
  <Appenders>
    <Console name="stdout"><PatternLayout pattern="[%d] %p %m (%c:%L)%n"/></Console>
  </Appenders>
  <Loggers>
    <Root level="INFO"><AppenderRef ref="stdout"/></Root>
  </Loggers>
</Configuration>
"""

TUNED_CONSUMER: Final = {
    "max.poll.records": 20_000,
    "max.partition.fetch.bytes": 8 * _MIB,
    "fetch.max.bytes": 64 * _MIB,
    "receive.buffer.bytes": 4 * _MIB,
}
TUNED_PRODUCER: Final = {
    "batch.size": 512 * _KIB,
    "linger.ms": 20,
    "buffer.memory": 128 * _MIB,
    "max.request.size": 8 * _MIB,
    "send.buffer.bytes": 4 * _MIB,
}

# As long as the header of srm: cluster id, topic, time.
_LITERAL: Final = "AAAAAAAAAAAAAAAAAAAAAA,bench-provenance,1767225600000"
_MM2_PROVENANCE: Final = """\
{flow}.transforms = provenance
{flow}.transforms.provenance.type = org.apache.kafka.connect.transforms.InsertHeader
{flow}.transforms.provenance.header = __replicator_id
{flow}.transforms.provenance.value.literal = {literal}
{flow}.header.converter = org.apache.kafka.connect.storage.StringConverter
"""


@dataclass(frozen=True)
class Route:
    """One flow of one engine, under its own alias so that engines stay apart."""

    alias: str
    source: str
    target: str
    topics: tuple[str, ...] = ("bench-.*",)
    provenance: bool = False

    @property
    def flow(self) -> str:
        """Name of the flow."""
        return f"{self.alias}->B"

    def remote(self, topic: str) -> str:
        """Name of the copy of a topic."""
        return f"{self.alias}.{topic}"


def common_properties(route: Route) -> str:
    """Return the common part of the configuration."""
    alias, flow = route.alias, route.flow
    return f"""\
clusters = {alias}, B
{alias}.bootstrap.servers = {route.source}
B.bootstrap.servers = {route.target}
{alias}.consumer.isolation.level = read_committed
{flow}.enabled = true
{flow}.topics = {", ".join(route.topics)}
B->{alias}.enabled = false
B->{alias}.emit.heartbeats.enabled = false
replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
tasks.max = {TASKS}
refresh.topics.interval.seconds = 2
emit.checkpoints.enabled = false
"""


def srm_properties(route: Route) -> str:
    """Return srm's configuration."""
    return common_properties(route) + (f"{PROVENANCE_KEY} = true\n" if route.provenance else "")


def mm2_properties(route: Route, tuned: bool = False) -> str:  # noqa: FBT001, FBT002
    """Return MirrorMaker 2's configuration."""
    text = common_properties(route)
    if tuned:
        text += "".join(
            f"{route.alias}.consumer.{name} = {value}\n" for name, value in TUNED_CONSUMER.items()
        )
        text += "".join(f"B.producer.{name} = {value}\n" for name, value in TUNED_PRODUCER.items())
    if route.provenance:
        text += _MM2_PROVENANCE.format(flow=route.flow, literal=_LITERAL)
    return text


def srm_command(config: Path, route: Route) -> list[str]:
    """Return the command that starts srm."""
    srm = Path(sys.executable).parent / "srm"
    return [str(srm), "replicate", "--config", str(config), "--flow", route.flow]


def mm2_command(config: Path, _route: Route) -> list[str]:
    """Return the command of Kafka's connect-mirror-maker script."""
    log4j = config.with_name("log4j2.xml")
    log4j.write_text(_LOG4J)
    logging = f"-Dlog4j2.configurationFile={log4j}"
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    java = str(find_java().program)
    return [java, *_JAVA_OPTIONS, logging, "-cp", kafka_class_path(), main, str(config)]


_VALUES: Final = re.compile(r"(Consumer|Producer)Config values: *\n((?:\t.*\n)+)")


def client_settings(log: str) -> list[tuple[str, Mapping[str, str]]]:
    """Return kind and settings of each client in a Java log."""
    clients: list[tuple[str, Mapping[str, str]]] = []
    for kind, block in _VALUES.findall(log):
        pairs = (line.strip().partition(" = ") for line in block.splitlines())
        clients.append((kind.lower(), {name: value for name, _, value in pairs}))
    return clients


def check_tuning(log: str) -> None:
    """Check that MirrorMaker 2's copying clients have the tuned settings.

    Raises:
        BenchError: they do not.
    """
    wanted = {"consumer": TUNED_CONSUMER, "producer": TUNED_PRODUCER}
    found = {
        kind
        for kind, settings in client_settings(log)
        if all(settings.get(name) == str(value) for name, value in wanted[kind].items())
        and ("producer" not in kind or "MirrorSource" in settings.get("client.id", ""))
    }
    for kind in wanted:
        if kind not in found:
            raise BenchError(f"mm2-tuned: no {kind} with the tuned settings in its log")


def check_nothing(_log: str) -> None:
    """Accept any log."""


@dataclass(frozen=True)
class Engine:
    """Definition of one engine.

    Attributes:
        fast: it gets ``Case.fast_factor`` times the records.
    """

    name: str
    properties: Callable[[Route], str]
    command: Callable[[Path, Route], Sequence[str]]
    check_log: Callable[[str], None] = check_nothing
    fast: bool = False


def _tuned(route: Route) -> str:
    return mm2_properties(route, tuned=True)


ENGINES: Final = {
    engine.name: engine
    for engine in (
        Engine("mm2-default", mm2_properties, mm2_command),
        Engine("mm2-tuned", _tuned, mm2_command, check_tuning),
        Engine("srm", srm_properties, srm_command, fast=True),
    )
}


@dataclass
class Running:
    """A started engine; ends with the ``with`` block."""

    engine: Engine
    route: Route
    home: Path
    started: float = field(init=False)
    tree: Tree = field(init=False)

    def __post_init__(self) -> None:
        """Start nothing yet."""
        self.log = self.home / f"{self.route.alias}.log"

    def __enter__(self) -> Self:
        config = self.home / f"{self.route.alias}.properties"
        config.write_text(self.engine.properties(self.route))
        command = list(self.engine.command(config, self.route))
        # As for users: without byte code each start would compile everything.
        environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        with self.log.open("w") as log:
            self.started = time.monotonic()
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=PROJECT,
                env=environ,
            )
        self.tree = Tree(self._process.pid)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        members = self.tree.processes()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_S)
        for process in members:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(_STOP_S)

    def check_alive(self) -> None:
        """Check that the engine runs.

        Raises:
            BenchError: it has ended; the message has its last line.
        """
        if self._process.poll() is not None:
            lines = self.log.read_text(errors="replace").strip().splitlines() or ["no output"]
            raise BenchError(f"{self.engine.name} has ended: {lines[-1]}")

    def check_settings(self) -> None:
        """Check in the log that the engine runs with its settings."""
        self.engine.check_log(self.log.read_text(errors="replace"))
