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

import javaproperties
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from tests.certificates import Authority
from tests.conftest import owner
from tests.faults.campaign.proxy import Proxy
from tests.faults.campaign.settings import Setting

from srm.errors import StackError
from srm.files import write_atomically
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.stack.process import LOOPBACK

MARK: Final = "SRM_CAMPAIGN"
"""Marks a broker with the folder of the campaign that started it."""
_GUARD: Final = """
import sys
from srm_lab.processes import end_processes, marked_processes
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


_TWO: Final = {
    "default.replication.factor": "2",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "replica.lag.time.max.ms": "3000",
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "1",
    "leader.imbalance.per.broker.percentage": "0",
}
_GUARDED: Final = "GUARDED"
_MOST_BROKERS: Final = 5
_STOP_S: Final = 20.0  # where it waits for a controller that is away, it is killed


class Broker(KafkaBroker):
    """A broker that several threads start and stop: each waits for the other to be done."""

    def __init__(self, *place: Any, **settings: Any) -> None:
        super().__init__(*place, **settings)
        self._lock = threading.RLock()

    def start(self) -> None:
        with self._lock:
            super().start()

    def stop(self, timeout: float = _STOP_S) -> None:
        with self._lock:
            super().stop(timeout)

    def kill(self) -> None:
        with self._lock:
            super().kill()


class GuardedBroker(Broker):
    """A broker with a listener for TLS, to which a proxy leads."""

    def __init__(self, home: Path, alias: str, **settings: Any) -> None:
        authority = Authority()
        signed = authority.broker(LOOPBACK)
        self.proxy = Proxy()
        home.mkdir(parents=True, exist_ok=True)
        self._ca = home / "ca.pem"
        self._ca.write_text(authority.own.pem)
        tls = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": signed.key_pem,
            "ssl.keystore.certificate.chain": signed.pem,
        }
        settings["server_props"] = {**settings["server_props"], **tls}
        super().__init__(home, alias, listeners={_GUARDED: "SSL"}, **settings)
        found = self.settings
        self.proxy.to_port = int(found[f"srm.port.{_GUARDED}"])
        advertised = {
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap},{_GUARDED}://{self._guarded}"
        }
        text = javaproperties.dumps({**found, **advertised}, timestamp=False)
        write_atomically(self._properties_file, text.encode())

    @property
    def _guarded(self) -> str:
        return f"{LOOPBACK}:{self.proxy.port}"

    @property
    def clients(self) -> dict[str, str]:
        """What clients need that come in by the proxy."""
        return {
            "bootstrap.servers": self._guarded,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self._ca),
        }


@dataclass(frozen=True)
class Pair:
    """Source and target clusters of one seed."""

    source: tuple[KafkaBroker, ...]
    target: tuple[KafkaBroker, ...]

    @property
    def replicas(self) -> int:
        """Replication factor on the target."""
        return len(self.target)

    @property
    def source_bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.source)

    @property
    def target_bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.target)

    @property
    def proxy(self) -> Proxy | None:
        """What stands before the target, if anything does."""
        [first, *_] = self.target
        return first.proxy if isinstance(first, GuardedBroker) else None

    @property
    def slots_target(self) -> dict[str, str]:
        """What the slots need to come to the target."""
        [first, *_] = self.target
        if isinstance(first, GuardedBroker):
            return first.clients
        return {"bootstrap.servers": self.target_bootstrap}

    def heal(self) -> None:
        """Wake and start whatever a plan has left stopped, and wait until all answer."""
        if self.proxy is not None:
            self.proxy.forward()
        for broker in (*self.source, *self.target):
            signal_broker(broker, signal.SIGCONT)
            broker.start()
        for broker in (*self.source, *self.target):
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
        self.environ = {**owner(), MARK: self._mark[1]}
        # The end of its input is the end of this process, a SIGKILL too.
        self._guard = subprocess.Popen(
            [sys.executable, "-c", _GUARD, *self._mark],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._clusters: dict[str, tuple[KafkaBroker, ...]] = {}
        self._started = 0

    def pair(self, setting: Setting) -> Pair:
        """Return running clusters for a plan."""
        targets = {"three": (3, _THREE), "expiring": (1, _EXPIRING)}
        name = setting if setting in {"three", "expiring", "guarded"} else "target"
        source, size = ("sources", 2) if setting == "sources" else ("source", 1)
        self._make_room({name, source})
        target = self._cluster(name, *targets.get(setting, (1, {})))
        return Pair(self._cluster(source, size, _TWO if size > 1 else {}), target)

    def renew(self, pair: Pair) -> None:
        """End the clusters of a plan; the next one that needs them gets new ones.

        Kafka 4.3's controller may not know a topic any more that it still takes for a member of
        replica sets, and then registers no broker again ("existed in isrMembers, but not in the
        topics map").
        """
        for name, cluster in list(self._clusters.items()):
            if cluster in (pair.source, pair.target):
                del self._clusters[name]
                _end(cluster)

    def _make_room(self, needed: set[str]) -> None:
        """Stop clusters that the next plan does not need, where there are many."""
        sizes = {"three": 3, "sources": 2}
        room = _MOST_BROKERS - sum(sizes.get(name, 1) for name in needed)
        for name, cluster in self._clusters.items():
            running = [broker for broker in cluster if broker.running]
            if name in needed or not running:
                continue
            if len(running) > room:
                for broker in reversed(cluster):
                    broker.stop()
            else:
                room -= len(running)

    def close(self) -> None:
        """End every broker."""
        for cluster in self._clusters.values():
            _end(cluster)
        self._guard.communicate()  # closes its input, and it ends what is left

    def _cluster(self, name: str, size: int, props: Mapping[str, str]) -> tuple[KafkaBroker, ...]:
        if name not in self._clusters:
            found: list[KafkaBroker] = []
            for node in range(1, size + 1):
                kind = GuardedBroker if name == "guarded" else Broker
                self._started += 1
                broker = kind(
                    self._home / f"{name}-{node}-{self._started}",
                    name,
                    node_id=node,
                    joins=found[0] if found else None,
                    server_props={**_QUICK, **props},
                    heap="512m",
                    environ=self.environ,
                )
                found.append(broker)
            self._clusters[name] = tuple(found)
        for broker in self._clusters[name]:
            broker.start()
        for broker in self._clusters[name]:
            broker.wait_ready()
        return self._clusters[name]


def _end(cluster: tuple[KafkaBroker, ...]) -> None:
    for broker in cluster:
        signal_broker(broker, signal.SIGCONT)
        broker.kill()
        if isinstance(broker, GuardedBroker):
            broker.proxy.close()


def signal_broker(broker: KafkaBroker, number: int) -> None:
    """Send a signal to a broker, if it runs."""
    pid = broker.pid
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def delete_topics(bootstrap: str, names: list[str], timeout_s: float = 120.0) -> None:
    """Delete topics and wait until they are gone; a cluster that is away is waited for.

    Raises:
        TimeoutError: they are still there, or nobody answers.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + timeout_s
    left = names
    while left:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not deleted within {timeout_s:.0f} s: {', '.join(left)}")
        for future in admin.delete_topics(left, request_timeout=10).values():
            with suppress(KafkaException):
                future.result()
        left = [name for name in left if _exists(admin, name)]


def _exists(admin: AdminClient, name: str) -> bool:
    [future] = admin.describe_topics(TopicCollection([name]), request_timeout=10).values()
    try:
        future.result()
    except KafkaException as error:
        return error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART
    return True
