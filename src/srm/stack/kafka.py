"""One-node KRaft clusters from Kafka's own jars: broker and controller in one process."""

from __future__ import annotations

import logging
import os
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import javaproperties
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from srm.errors import StackError
from srm.stack.disk import write_atomically
from srm.stack.jars import kafka_class_path
from srm.stack.java import find_java
from srm.stack.ports import LOOPBACK, answers, free_port, require_free
from srm.stack.process import ManagedProcess, ProcessSpec, telling_line

logger = logging.getLogger(__name__)

START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 20.0
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

_LOG4J: Final = """\
<Configuration status="ERROR">
  <Appenders>
    <Console name="stdout"><PatternLayout pattern="[%d] %p %m (%c)%n"/></Console>
  </Appenders>
  <Loggers>
    <Root level="INFO"><AppenderRef ref="stdout"/></Root>
  </Loggers>
</Configuration>
"""


class KafkaBroker:
    """One cluster of one broker. Data, port and cluster id survive stop, kill and start.

    Args:
        home: folder of this broker alone; created when missing.
        alias: alias of the cluster, for messages.
        server_props: additions to, or replacements of, the settings in server.properties.
        heap: Java's maximum heap.
        environ: additions to the environment; they mark the process for who has to find it.
        log: file for the broker's log lines, ``broker.log`` in ``home`` by default.
    """

    def __init__(
        self,
        home: Path,
        alias: str,
        *,
        server_props: Mapping[str, str] | None = None,
        heap: str = "768m",
        environ: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        self.home = home.absolute()
        self.alias = alias
        self._extra = dict(server_props or {})
        self._heap = heap
        self._environ = dict(environ or {})
        self._process = ManagedProcess(
            f"Kafka cluster {alias}", log or self.home / "broker.log", self.home / "broker.pid"
        )

    @property
    def port(self) -> int:
        """Port of the broker; chosen when first needed, then kept in server.properties."""
        return int(self._settings()["srm.port"])

    @property
    def bootstrap(self) -> str:
        """Address for clients."""
        return f"{LOOPBACK}:{self.port}"

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
        """Whether the broker's process runs; it may not be ready yet."""
        return self._process.running

    def start(self) -> None:
        """Start the broker, formatting its storage the first time; does not wait until it is ready.

        Raises:
            StackError: Java or the jars are missing, a port is taken, the disk is full.
        """
        if self.running:
            return
        java = find_java()
        class_path = kafka_class_path()
        settings = self._settings()
        for name in ("srm.port", "srm.controller.port"):
            require_free(int(settings[name]), f"Kafka cluster {self.alias}")
        environ = {**os.environ, "CLASSPATH": class_path, **self._environ}
        self._format(java.program, environ)
        command = [
            str(java.program),
            f"-Xmx{self._heap}",
            "-Xms256m",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self.home / 'log4j2.xml'}",
            "kafka.Kafka",
            str(self._properties_file),
        ]
        self._process.start(ProcessSpec(self._process.name, command, environ, self.log, self.home))
        logger.info("cluster %s starts on %s", self.alias, self.bootstrap)

    def wait_ready(self, timeout: float = START_SECONDS) -> None:
        """Wait until the cluster answers metadata requests with its broker in the list.

        Raises:
            StackError: the broker ended, or is not ready after ``timeout`` seconds.
        """
        self._process.wait_until(lambda: answers(self.port), timeout, "listening")
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self._process.wait_until(lambda: _lists_a_broker(client), timeout, "ready")

    @property
    def ready(self) -> bool:
        """Whether the cluster answers metadata requests now."""
        if not self.running or not answers(self.port):
            return False
        return _lists_a_broker(AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}))

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

    @property
    def _properties_file(self) -> Path:
        return self.home / "server.properties"

    def _settings(self) -> dict[str, str]:
        """Return the broker's settings; the first call chooses ports and writes the file."""
        if self._properties_file.exists():
            text = self._properties_file.read_text(encoding="utf-8")
            return dict(javaproperties.loads(text))
        port, controller_port = free_port(), free_port()
        settings = {
            **_SMALL,
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"{LOOPBACK}:{controller_port}",
            "log.dirs": str(self.home / "data"),
            # Not Kafka's, and ignored by it: what this module reads back.
            "srm.port": str(port),
            "srm.controller.port": str(controller_port),
            **self._extra,
        }
        write_atomically(self.home / "log4j2.xml", _LOG4J.encode())
        text = javaproperties.dumps(settings, timestamp=False)
        write_atomically(self._properties_file, text.encode())
        return settings

    def _format(self, java: Path, environ: Mapping[str, str]) -> None:
        if (self.home / "data" / "meta.properties").exists():
            return
        command = [
            str(java),
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={self.home / 'log4j2.xml'}",
            "kafka.tools.StorageTool",
            "format",
            "--standalone",
            "--cluster-id",
            _new_cluster_id(),
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
                f"Kafka cluster {self.alias}: the storage in {self.home / 'data'} cannot be "
                f"formatted: {telling_line(lines)}"
            )


def _lists_a_broker(client: AdminClient) -> bool:
    try:
        return bool(client.list_topics(timeout=_METADATA_SECONDS).brokers)
    except KafkaException:
        return False


def _new_cluster_id() -> str:
    """Return a random id in Kafka's notation; a leading dash would read as an option."""
    while True:
        text = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text
