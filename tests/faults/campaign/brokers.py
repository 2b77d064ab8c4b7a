"""The brokers of a campaign, started when a plan first needs them and kept for the next seeds.

However the campaign ends, they end with it: a guard of their own waits for that.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from tests.conftest import of_a_broker
from tests.faults.campaign.plan import Setting

from srm.errors import StackError
from srm.stack.kafka import STOP_SECONDS, KafkaBroker

MARK: Final = "SRM_CAMPAIGN"
"""Marks a broker with the folder of the campaign that started it."""
_GUARD: Final = """
import sys
from srm.stack.process import end_processes, marked_processes
sys.stdin.read()
end_processes(marked_processes(*sys.argv[1:]), timeout=0)
"""
_QUICK: Final = {
    # A broker that is killed forgets what was deleted since.
    "log.flush.start.offset.checkpoint.interval.ms": "200",
    "log.cleaner.backoff.ms": "300",
    "log.segment.delete.delay.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
}
_EXPIRING: Final = {
    "producer.id.expiration.ms": "4000",
    "producer.id.expiration.check.interval.ms": "200",
    "transactional.id.expiration.ms": "4000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "300",
}
_THREE: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "3000",
    # Leaders go back to the first replica soon after its broker has.
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "1",
    "leader.imbalance.per.broker.percentage": "0",
}


class Broker(KafkaBroker):
    """A broker that several threads start and stop: each waits for the other to be done."""

    def __init__(self, *place: Any, **settings: Any) -> None:
        super().__init__(*place, **settings)
        self._lock = threading.RLock()

    def start(self) -> None:
        with self._lock:
            super().start()

    def stop(self, timeout: float = STOP_SECONDS) -> None:
        with self._lock:
            super().stop(timeout)

    def kill(self) -> None:
        with self._lock:
            super().kill()


@dataclass(frozen=True)
class Pair:
    """Source and target clusters of one seed."""

    source: KafkaBroker
    target: tuple[KafkaBroker, ...]

    @property
    def replicas(self) -> int:
        """Replication factor on the target."""
        return len(self.target)

    @property
    def target_bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.target)

    def heal(self) -> None:
        """Wake and start whatever a plan has left stopped, and wait until all answer."""
        for broker in (self.source, *self.target):
            signal_broker(broker, signal.SIGCONT)
            broker.start()
        for broker in (self.source, *self.target):
            try:
                broker.wait_ready()
            except StackError:
                if broker.running:
                    raise
                broker.start()  # it was still shutting down
                broker.wait_ready()


class Brokers:
    """All clusters of a campaign, in one folder."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._mark = MARK, str(home.absolute())
        self.environ = {**of_a_broker(), MARK: self._mark[1]}
        # The end of its input is the end of this process, a SIGKILL too.
        self._guard = subprocess.Popen(
            [sys.executable, "-c", _GUARD, *self._mark],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._clusters: dict[str, tuple[KafkaBroker, ...]] = {}

    def pair(self, setting: Setting) -> Pair:
        """Return running clusters for a plan."""
        if setting == "three":
            target = self._cluster("three", 3, _THREE)
        elif setting == "expiring":
            target = self._cluster("expiring", 1, _EXPIRING)
        else:
            target = self._cluster("target", 1, {})
        [source] = self._cluster("source", 1, {})
        return Pair(source, target)

    def close(self) -> None:
        """End every broker."""
        for cluster in self._clusters.values():
            for broker in cluster:
                signal_broker(broker, signal.SIGCONT)
                broker.kill()
        self._guard.communicate()  # closes its input, and it ends what is left

    def _cluster(self, name: str, size: int, props: Mapping[str, str]) -> tuple[KafkaBroker, ...]:
        if name not in self._clusters:
            found: list[KafkaBroker] = []
            for node in range(1, size + 1):
                broker = Broker(
                    self._home / f"{name}-{node}",
                    name,
                    node_id=node,
                    joins=found[0] if found else None,
                    server_props={**_QUICK, **props},
                    heap="512m",
                    environ=self.environ,
                )
                found.append(broker)
            self._clusters[name] = tuple(found)
            for broker in found:
                broker.start()
            for broker in found:
                broker.wait_ready()
        return self._clusters[name]


def signal_broker(broker: KafkaBroker, number: int) -> None:
    """Send a signal to a broker, if it runs."""
    pid = broker.pid
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def delete_topics(bootstrap: str, names: list[str], timeout_s: float = 30.0) -> None:
    """Delete topics and wait until they are gone."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + timeout_s
    left = names
    while left and time.monotonic() < deadline:
        for future in admin.delete_topics(left, request_timeout=10).values():
            with suppress(KafkaException):
                future.result()
        left = [name for name in left if _exists(admin, name)]


def _exists(admin: AdminClient, name: str) -> bool:
    [future] = admin.describe_topics(TopicCollection([name]), request_timeout=10).values()
    try:
        future.result()
    except KafkaException:
        return False
    return True
