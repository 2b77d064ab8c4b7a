"""The two clusters of a run, their topics, and the gate that holds a topic's records back."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka import OFFSET_END, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from bench.errors import BenchError, wait
from bench.wire import BrokerSocket
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.stack.process import LOOPBACK, answers, free_port

PROJECT: Final = Path(__file__).resolve().parent.parent
ONE_WAY_MS: Final = 25
_ADMIN_S: Final = 60.0
_GONE_S: Final = 180.0
_AT_ONCE: Final = 100
_ERRORS: Final = 3
_SETTINGS: Final = {
    # A broker busy with a thousand new partitions must not be fenced.
    "broker.session.timeout.ms": "60000",
    "log.cleaner.backoff.ms": "500",
    # Copied records are deleted after each case, before they are flushed to disk.
    "log.retention.check.interval.ms": "1000",
    "log.segment.bytes": "67108864",
    "log.segment.delete.delay.ms": "100",
    "num.io.threads": "4",
}


class Site:
    """One cluster: a broker with a second listener on a slow line."""

    def __init__(self, home: Path, alias: str) -> None:
        port, controller, far, self._relay_port = (free_port() for _ in range(4))
        listeners = f"PLAINTEXT://{LOOPBACK}:{port},FAR://{LOOPBACK}:{far}"
        settings = {
            **_SETTINGS,
            "listeners": f"{listeners},CONTROLLER://{LOOPBACK}:{controller}",
            # Clients of the second listener get the address of the relay.
            "advertised.listeners": (
                f"PLAINTEXT://{LOOPBACK}:{port},FAR://{LOOPBACK}:{self._relay_port}"
            ),
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,FAR:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
            "srm.port": str(port),
            "srm.controller.port": str(controller),
        }
        self.broker = KafkaBroker(
            home / alias, alias, server_props=settings, heap="1g", java_options=()
        )
        self._far_port = far
        self._relay: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """Address without delay."""
        return self.broker.bootstrap

    @property
    def far_bootstrap(self) -> str:
        """Address of the relay, which starts at the first use."""
        if self._relay is None:
            ports = [str(self._relay_port), str(self._far_port)]
            command = [sys.executable, "-m", "bench.relay", str(ONE_WAY_MS), *ports]
            self._relay = subprocess.Popen(command, cwd=PROJECT)
            wait(lambda: answers(self._relay_port), 20, "the relay listens")
        return f"{LOOPBACK}:{self._relay_port}"

    @property
    def data(self) -> Path:
        """Folder of the broker's logs."""
        return self.broker.home / "data"

    def connect(self) -> BrokerSocket:
        """Open a connection for the bench."""
        return BrokerSocket(self.bootstrap)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": _ERRORS})

    def create(self, topic: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        """Create one topic."""
        self.create_all([topic], partitions, configs)

    def create_all(
        self, topics: Sequence[str], partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create topics of one kind, many in a request."""
        admin = self._admin()
        for first in range(0, len(topics), _AT_ONCE):
            some = topics[first : first + _AT_ONCE]
            wanted = [NewTopic(t, partitions, 1, config=dict(configs or {})) for t in some]
            for topic, future in admin.create_topics(wanted).items():
                try:
                    future.result(_ADMIN_S)
                except KafkaException as error:
                    raise BenchError(f"topic {topic} cannot be created: {error}") from error

    def configure(self, topic: str, configs: Mapping[str, str]) -> None:
        """Change settings of a topic."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        admin = self._admin()
        admin.incremental_alter_configs([resource])[resource].result(_ADMIN_S)

    def forget(self, topic: str, partitions: int) -> None:
        """Delete all records of a topic."""
        ends = [TopicPartition(topic, number, OFFSET_END) for number in range(partitions)]
        admin = self._admin()  # futures are lost with their client
        for future in admin.delete_records(ends).values():
            future.result(_ADMIN_S)

    def topics(self) -> set[str]:
        """Return the names of all topics except the broker's internal ones."""
        admin = self._admin()
        names = admin.list_topics(timeout=_ADMIN_S).topics
        return {name for name in names if not name.startswith("__")}

    def clean(self, keep: frozenset[str] = frozenset()) -> None:
        """Delete all topics except the given and internal ones, and wait for their disk space."""
        doomed = sorted(self.topics() - keep)
        admin = self._admin()
        for first in range(0, len(doomed), _AT_ONCE):
            for future in admin.delete_topics(doomed[first : first + _AT_ONCE]).values():
                future.result(_ADMIN_S)
        wait(lambda: not self._folders(doomed), _GONE_S, "deleted topics leave the disk", 0.2)

    def _folders(self, topics: Sequence[str]) -> bool:
        names = set(topics)
        return any(p.name.rpartition("-")[0] in names for p in self.data.glob("*-*"))

    def stop(self) -> None:
        """End broker and relay."""
        if self._relay is not None:
            self._relay.terminate()
            self._relay.wait(10)
        self.broker.kill()


@dataclass(frozen=True)
class Pair:
    """Source and target."""

    source: Site
    target: Site


@contextmanager
def clusters(home: Path) -> Iterator[Pair]:
    """Run two clusters, and delete them afterwards."""
    pair = Pair(Site(home, "A"), Site(home, "B"))
    try:
        for site in (pair.source, pair.target):
            site.broker.start()
        for site in (pair.source, pair.target):
            site.broker.wait_ready()
        yield pair
    finally:
        for site in (pair.source, pair.target):
            site.stop()
        shutil.rmtree(home, ignore_errors=True)


class Gate:
    """Holds back records appended to a topic until it is opened.

    An open transaction limits readers of committed records. An engine that waits there is
    connected, assigned and warm, and gets all records with the commit. It costs one record per
    partition, which is copied like any other.
    """

    def __init__(self, site: Site) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": site.bootstrap,
                "transactional.id": f"bench-{site.broker.alias}",
                "transaction.timeout.ms": 800_000,
                "log_level": _ERRORS,  # the coordinator may be loading
            }
        )
        self._producer.init_transactions(_ADMIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del self._producer

    @contextmanager
    def closed(self, topic: str, partitions: int) -> Iterator[None]:
        """Keep the topic closed during the body, open it at its end."""
        self._producer.begin_transaction()
        for number in range(partitions):
            self._producer.produce(topic, b"gate", partition=number)
        if self._producer.flush(_ADMIN_S):
            raise BenchError(f"{topic} cannot be closed")
        try:
            yield
        except BaseException:
            self._producer.abort_transaction(_ADMIN_S)
            raise
        self._producer.commit_transaction(_ADMIN_S)
