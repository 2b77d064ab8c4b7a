"""KRaft clusters from Kafka's own jars: one broker that is controller too, and any more brokers."""

from __future__ import annotations

import logging
import os
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import javaproperties
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from srm.errors import StackError
from srm.files import write_atomically
from srm_lab.stack.jars import KAFKA_VERSION, cache_folder, jar_folder, kafka_class_path
from srm_lab.stack.java import (
    QUICK_START,
    OnBegin,
    archive_options,
    class_archive,
    find_java,
    write_archive,
)
from srm_lab.stack.process import (
    LOOPBACK,
    ManagedProcess,
    ProcessSpec,
    answers,
    error_line,
    free_port,
    require_free,
)

logger = logging.getLogger(__name__)

START_SECONDS: Final = 240.0  # on a busy machine; a quiet one needs about 3
STOP_SECONDS: Final = 60.0
_BOOTSTRAP: Final = "bootstrap.checkpoint"
"""Kafka's file with the feature levels that a new cluster begins with."""
_FORMAT_SECONDS: Final = 120.0
_METADATA_SECONDS: Final = 5.0

# Small and quick to start: few partitions in the internal topics, no wait before a rebalance,
# short heartbeats so that a group of the new protocol settles within a second.
_SMALL: Final[Mapping[str, str]] = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    # A broker started again after SIGKILL waits until its former session has run out.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "default.replication.factor": "1",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.max.session.timeout.ms": "3600000",
    "group.min.session.timeout.ms": "1000",
    # A segment is cleaned when it may be, not up to 15 s later.
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "min.insync.replicas": "1",
    "num.io.threads": "4",
    "num.network.threads": "2",
    "offsets.topic.num.partitions": "8",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "8",
    "transaction.state.log.replication.factor": "1",
}

_LOG4J2: Final = """\
<Configuration status="ERROR">
  <Appenders>
    <Console name="stdout"><PatternLayout pattern="[%d] %p %m (%c)%n"/></Console>
  </Appenders>
  <Loggers>
    <Root level="INFO"><AppenderRef ref="stdout"/></Root>
  </Loggers>
</Configuration>
"""
# Kafka before 4.0 logs through log4j 1's successor.
_LOG4J: Final = """\
log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class KafkaBroker:
    """One broker: a cluster by itself, or one that joins the cluster of another.

    Data, port and cluster id survive stop, kill and start. Only the first broker of a cluster is
    a controller too: without it the others serve on, but no leader moves.

    Args:
        home: folder of this broker alone; created when missing.
        alias: alias of the cluster, for messages.
        node_id: Kafka's ``node.id``, unique in the cluster.
        joins: the first broker of the cluster, where this is not the first itself.
        version: Kafka's version, one that has a lock file.
        listeners: further listeners, by their names in capitals, with Kafka's names of their
            security protocols; what these need is in ``server_props``.
        server_props: additions to, or replacements of, the settings in server.properties.
        heap: Java's maximum heap.
        java_options: further options of Java instead of those that make for a quick start; none
            for a broker whose speed is measured.
        environ: additions to the environment; they mark the process for who has to find it.
        log: file for the broker's log lines, ``broker.log`` in ``home`` by default.
    """

    def __init__(
        self,
        home: Path,
        alias: str,
        *,
        node_id: int = 1,
        joins: KafkaBroker | None = None,
        version: str = KAFKA_VERSION,
        listeners: Mapping[str, str] | None = None,
        server_props: Mapping[str, str] | None = None,
        heap: str = "768m",
        java_options: Sequence[str] | None = None,
        environ: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        self.home = home.absolute()
        self.alias = alias
        self.node_id = node_id
        self._joins = joins
        self._version = version
        self._listeners = dict(listeners or {})
        self._extra = dict(server_props or {})
        self._memory = (f"-Xmx{heap}", "-Xms256m", "-Djava.awt.headless=true")
        self._java_options = java_options
        self._environ = dict(environ or {})
        self._process = ManagedProcess(
            f"Kafka cluster {alias}" + (f", broker {node_id}" if joins else ""),
            log or self.home / "broker.log",
            self.home / "broker.pid",
        )

    @property
    def port(self) -> int:
        """Port of the broker; chosen when first needed, then kept in server.properties."""
        return int(self.settings["srm.port"])

    @property
    def bootstrap(self) -> str:
        """Address of this broker for clients."""
        return f"{LOOPBACK}:{self.port}"

    def address(self, listener: str) -> str:
        """Address of one of the further listeners."""
        return f"{LOOPBACK}:{self.settings[f'srm.port.{listener}']}"

    @property
    def log(self) -> Path:
        """File with the broker's log lines."""
        return self._process.log

    @property
    def pid(self) -> int | None:
        """Process id while the broker runs."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while the broker's process runs; it may not be ready yet."""
        return self._process.running

    def start(self) -> None:
        """Start the broker, formatting its storage the first time; does not wait until it is ready.

        StackError: Java or the jars are missing, a port is taken, the disk is full.
        """
        if self.running:
            return
        java = find_java()
        class_path = kafka_class_path(version=self._version)
        settings = self.settings
        ports = ["srm.port"] if self._joins else ["srm.port", "srm.controller.port"]
        for name in ports:
            require_free(int(settings[name]), self._process.name)
        environ = {**os.environ, "CLASSPATH": class_path, **self._environ}
        self._format(java.program, environ, settings["srm.cluster.id"])
        command = [
            str(java.program),
            *self._memory,
            *(quick_start(self._version) if self._java_options is None else self._java_options),
            *self._logging,
            "kafka.Kafka",
            str(self._properties_file),
        ]
        self._process.start(ProcessSpec(self._process.name, command, environ, self.log, self.home))
        logger.info("cluster %s starts on %s", self.alias, self.bootstrap)

    def wait_ready(self, timeout: float = START_SECONDS) -> None:
        """Wait until the broker answers metadata requests with itself in the list.

        StackError: the broker ended, or is not ready after ``timeout`` seconds.
        """
        self._process.wait_until(lambda: answers(self.port), timeout, "listening")
        self._process.wait_until(self._is_listed, timeout, "ready")

    @property
    def ready(self) -> bool:
        """True if the broker answers metadata requests now, with itself in the list."""
        if not self.running or not answers(self.port):
            return False
        return self._is_listed()

    def stop(self, timeout: float = STOP_SECONDS) -> None:
        """Shut the broker down in order; SIGKILL after ``timeout`` seconds."""
        self._process.stop(timeout)

    def kill(self) -> None:
        """End the broker with SIGKILL, as a crash would."""
        self._process.kill()

    def restart(self) -> None:
        """Stop in order, start again with the same data and port, wait until ready."""
        self.stop()
        self.start()
        self.wait_ready()

    def _is_listed(self) -> bool:
        # A client of its own for each look: one whose metadata listed no broker at all, as that of
        # a frozen broker may, might never find any again (librdkafka issue 5301).
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            return self.node_id in client.list_topics(timeout=_METADATA_SECONDS).brokers
        except KafkaException:
            return False

    @property
    def _logging(self) -> tuple[str, str]:
        """Options for either of the two logging libraries; each knows only its own."""
        return (
            f"-Dlog4j2.configurationFile={self.home / 'log4j2.xml'}",
            f"-Dlog4j.configuration=file:{self.home / 'log4j.properties'}",
        )

    @property
    def _properties_file(self) -> Path:
        return self.home / "server.properties"

    @property
    def settings(self) -> dict[str, str]:
        """Settings of the broker; the first use chooses ports and writes server.properties."""
        if self._properties_file.exists():
            text = self._properties_file.read_text(encoding="utf-8")
            return dict(javaproperties.loads(text))
        ports = {name: free_port() for name in ("PLAINTEXT", *self._listeners)}
        addresses = ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items())
        if self._joins:
            first = self._joins.settings
            controller_port, cluster_id = first["srm.controller.port"], first["srm.cluster.id"]
            role = {"process.roles": "broker", "listeners": addresses}
        else:
            controller_port, cluster_id = str(free_port()), _new_id()
            listeners = f"{addresses},CONTROLLER://{LOOPBACK}:{controller_port}"
            role = {"process.roles": "broker,controller", "listeners": listeners}
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **self._listeners}
        settings = {
            **_SMALL,
            **role,
            "node.id": str(self.node_id),
            "advertised.listeners": addresses,
            "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
            "controller.listener.names": "CONTROLLER",
            # The one way to name the controllers that all versions know.
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller_port}",
            "log.dirs": str(self.home / "data"),
            # Not Kafka's, and ignored by it: what this module reads back.
            "srm.port": str(ports.pop("PLAINTEXT")),
            **{f"srm.port.{name}": str(port) for name, port in ports.items()},
            "srm.controller.port": controller_port,
            "srm.cluster.id": cluster_id,
            **self._extra,
        }
        write_atomically(self.home / "log4j2.xml", _LOG4J2.encode())
        write_atomically(self.home / "log4j.properties", _LOG4J.encode())
        text = javaproperties.dumps(settings, timestamp=False)
        write_atomically(self._properties_file, text.encode())
        return settings

    def _format(self, java: Path, environ: Mapping[str, str], cluster_id: str) -> None:
        """Format the storage: with Kafka's tool the first time, a Java that takes a second or two.

        What the tool writes depends on the version, but for three ids: it is kept for the others.
        """
        data = self.home / "data"
        if (data / "meta.properties").exists():
            return
        kept = cache_folder() / f"kafka-{self._version}-{_BOOTSTRAP}"
        if not kept.exists():
            self._run_storage_tool(java, environ, cluster_id)
            write_atomically(kept, (data / _BOOTSTRAP).read_bytes())
            return
        ids = {
            "version": "1",
            "cluster.id": cluster_id,
            "node.id": str(self.node_id),
            "directory.id": _new_id(),
        }
        write_atomically(data / _BOOTSTRAP, kept.read_bytes())
        # The last one: a folder with it is a formatted one.
        text = javaproperties.dumps(ids, timestamp=False)
        write_atomically(data / "meta.properties", text.encode())

    def _run_storage_tool(self, java: Path, environ: Mapping[str, str], cluster_id: str) -> None:
        command = [
            str(java),
            "-Xmx256m",
            *QUICK_START,
            *self._logging,
            "kafka.tools.StorageTool",
            "format",
            "--cluster-id",
            cluster_id,
            "--config",
            str(self._properties_file),
        ]
        result = subprocess.run(
            command,
            env=dict(environ),
            capture_output=True,
            text=True,
            timeout=_FORMAT_SECONDS,
            check=False,
        )
        if result.returncode != 0:
            lines = [line.strip() for line in (result.stdout + result.stderr).splitlines()]
            raise StackError(
                f"{self._process.name}: the storage in {self.home / 'data'} cannot be "
                f"formatted: {error_line(lines)}"
            )


def quick_start(version: str = KAFKA_VERSION) -> tuple[str, ...]:
    """Return the options of a Java that runs for minutes on Kafka's class path.

    StackError: Java is missing.
    """
    return (*QUICK_START, *archive_options(_archive(version)))


def archive_broker_classes(
    version: str = KAFKA_VERSION,
    environ: Mapping[str, str] | None = None,
    on_begin: OnBegin | None = None,
) -> None:
    """Have the archive written with which brokers start quickly; 5 s the first time.

    Fetches the jars that the cache lacks. ``version``: Kafka's version. ``environ``: additions to
    the environment of the broker that is started for it. ``on_begin``: called if it has to be
    written. StackError: Java is missing, or a jar cannot be fetched.
    """
    kafka_class_path(version=version)  # an archive is one of these jars

    def run(folder: Path, option: str) -> None:
        options = (*QUICK_START, option)
        broker = KafkaBroker(
            folder, "archive", version=version, java_options=options, environ=environ
        )
        try:
            broker.start()
            broker.wait_ready()
            broker.stop()
        finally:
            broker.kill()

    write_archive(_archive(version), run, on_begin)


def _archive(version: str) -> Path:
    return class_archive(f"kafka-{version}", find_java(), jar_folder(version))


def _new_id() -> str:
    """Return a random id in Kafka's notation; a leading dash would read as an option."""
    while True:
        text = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text
