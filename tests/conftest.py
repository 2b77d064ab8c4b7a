"""Real brokers for tests: a pair for the whole session, and a factory for brokers of one's own.

Brokers run in process groups of their own, so they are ended explicitly: at the end of the
session, on SIGTERM too, and by the next session where this one was killed.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import suppress
from pathlib import Path
from types import FrameType

import psutil
import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import HealthCheck, settings
from tests.again import has_real_processes
from tests.tiers import tier
from tests.waiting import DEADLINE_S

from srm.clock import now_ms
from srm.config.model import ClusterClients
from srm.domain.groups.mm2_records import Heartbeat
from srm.domain.names.internal_topics import HEARTBEATS
from srm.domain.names.topics import Flow
from srm.engine.control.control_topics import compacted_spec
from srm.errors import StackError
from srm.kafka.cluster import KafkaCluster
from srm_lab.stack import spark
from srm_lab.stack.jars import KAFKA_VERSION
from srm_lab.stack.java import QUICK_START
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.stack.process import started_at

OWNER = "SRM_TEST_OWNER"
"""Marks a broker with the pid and start time of the test session that started it."""

_TESTS = Path(__file__).parent
_UNIT = _TESTS / "unit"

_REAL_LIMIT_S = 1800.0
"""Least time limit of a test with real processes: deadlines within it stop on a starved machine."""

LASTING = {"broker.session.timeout.ms": "60000"}
"""Setting of brokers that no test kills: a starved one is not fenced by its own controller."""

os.environ.setdefault("SRM_TIMEOUT", "30")  # a busy broker is slow, not dead

BrokerFactory = Callable[..., KafkaBroker]


# How long an example takes says how busy the machine is, and nothing about the code. A landing
# tries the same examples each time; `--hypothesis-profile search` looks for new ones.
settings.register_profile(
    "search",
    deadline=None,
    derandomize=False,  # the default of hypothesis where it sees a CI is True
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=1000,
)
settings.register_profile("srm", settings.get_profile("search"), max_examples=100, derandomize=True)
settings.load_profile("srm")


def pytest_configure() -> None:
    for name in ("COLUMNS", "LINES"):  # what commands print is not to be cut at somebody's window
        os.environ.pop(name, None)
    with suppress(StackError):  # no Java: those that need none run all the same
        os.environ["SPARK_SUBMIT_OPTS"] = shlex.join(spark.quick_start())
        os.environ["SPARK_LAUNCHER_OPTS"] = " ".join(QUICK_START)

    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Shells start background jobs so, and children inherit it: none could be interrupted.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def end_session(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end_session)


@pytest.fixture(autouse=True)
def _log_handlers() -> Iterator[None]:
    """Take away what a command run by a test leaves: a handler that writes to that test's stderr.

    Whatever is logged later would be printed as an error of logging, into another test's output.
    """
    root = logging.getLogger()
    before = root.handlers[:]
    yield
    root.handlers[:] = before


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test by its tier, and give one with real processes the time of a starved machine."""
    mark = tier(item.path.relative_to(_TESTS).as_posix())
    if mark:
        item.add_marker(mark)
    if has_real_processes(item):
        item.add_marker(pytest.mark.timeout(max(_REAL_LIMIT_S, _limit(item))), append=False)


def _limit(item: pytest.Item) -> float:
    limit = item.get_closest_marker("timeout")
    return float(limit.args[0]) if limit else 0.0


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files whose tests may take longest, so that none of them is left alone.

    Unit tests come last: they are short, and fill what the others leave of each process.
    """
    limits: dict[Path, float] = defaultdict(float)
    for item in items:
        limits[item.path] = max(limits[item.path], _limit(item))
    items.sort(key=lambda item: (-limits[item.path], _UNIT in item.path.parents))


def owner() -> dict[str, str]:
    """Environment of a process that belongs to this session."""
    return {OWNER: f"{os.getpid()} {psutil.Process().create_time()}"}


def _end_brokers_of_dead_sessions() -> None:
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            owner = process.environ().get(OWNER)
            if owner is not None and not _session_lives(*owner.split()):
                process.kill()


def _session_lives(pid: str, created: str) -> bool:
    try:
        return started_at(psutil.Process(int(pid)), float(created))
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, KafkaBroker]]:
    """Two running one-node clusters, ``P`` and ``B``, shared by all tests of the session.

    Tests use topics and groups of unique names, and neither stop nor kill these brokers. The one
    topic that has the same name for all is there from the start: whatever order tests run in,
    each of them meets heartbeats of others.
    """
    _end_brokers_of_dead_sessions()
    home = tmp_path_factory.mktemp("clusters")
    brokers = {
        alias: KafkaBroker(home / alias, alias, server_props=LASTING, environ=owner())
        for alias in ("P", "B")
    }
    try:
        for broker in brokers.values():
            broker.start()
        for broker in brokers.values():
            broker.wait_ready()
            _beat(broker)
        yield brokers
    finally:
        for broker in brokers.values():
            broker.kill()


@pytest.fixture(autouse=True)
def _copies_of_heartbeats_end(request: pytest.FixtureRequest) -> Iterator[None]:
    """Delete what a test's flows copied of heartbeats on the shared clusters.

    Each flow copies all heartbeats it finds, also copies: with flows both ways they would double.
    """
    is_real = "clusters" in request.fixturenames and _UNIT not in request.path.parents
    brokers = request.getfixturevalue("clusters").values() if is_real else ()
    yield
    for broker in brokers:
        client = AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = client.list_topics(timeout=DEADLINE_S).topics
        copies = [name for name in topics if name.endswith(f".{HEARTBEATS}")]
        if copies:
            wait(client.delete_topics(copies).values(), DEADLINE_S)


def _beat(broker: KafkaBroker) -> None:
    servers = {"bootstrap.servers": broker.bootstrap}
    with KafkaCluster(broker.alias, ClusterClients.alike(servers), timeout_s=DEADLINE_S) as cluster:
        cluster.create_topics([compacted_spec(HEARTBEATS, 1)])
        for flow in (Flow("elsewhere", broker.alias), Flow("nowhere", broker.alias)):
            heartbeat = Heartbeat(flow, now_ms())
            cluster.compacted_topic(HEARTBEATS).write({heartbeat.key(): heartbeat.value()})


@pytest.fixture
def broker_factory(tmp_path: Path) -> Iterator[BrokerFactory]:
    """Make brokers that the test may stop, kill and restart.

    ``broker_factory("X", **{"message.max.bytes": "1000"})`` returns one that is ready; with
    ``version="3.9.1"`` it is one of an older Kafka.
    """
    brokers: list[KafkaBroker] = []

    def make(alias: str = "X", *, version: str = KAFKA_VERSION, **server_props: str) -> KafkaBroker:
        broker = KafkaBroker(
            tmp_path / f"{alias}-{len(brokers)}",
            alias,
            version=version,
            server_props=server_props,
            environ=owner(),
        )
        brokers.append(broker)
        broker.start()
        broker.wait_ready()
        return broker

    yield make
    for broker in brokers:
        broker.kill()


@pytest.fixture
def cluster_factory(tmp_path: Path) -> Iterator[Callable[..., list[KafkaBroker]]]:
    """Make clusters of several brokers that the test may stop, kill and restart.

    ``cluster_factory("X", 3)`` returns three, ready, with every topic on all of them and
    acknowledged by all but one. The first is the controller: only while it runs leaders move.
    """
    clusters: list[list[KafkaBroker]] = []

    def make(alias: str = "X", brokers: int = 3, **server_props: str) -> list[KafkaBroker]:
        all_brokers, all_but_one = str(brokers), str(max(1, brokers - 1))
        replicated = {
            "default.replication.factor": all_brokers,
            "min.insync.replicas": all_but_one,
            "offsets.topic.replication.factor": all_brokers,
            "transaction.state.log.replication.factor": all_brokers,
            "transaction.state.log.min.isr": all_but_one,
            **server_props,
        }
        cluster: list[KafkaBroker] = []
        clusters.append(cluster)
        for node_id in range(1, brokers + 1):
            broker = KafkaBroker(
                tmp_path / f"{alias}-cluster-{len(clusters)}-{node_id}",
                alias,
                node_id=node_id,
                joins=cluster[0] if cluster else None,
                server_props=replicated,
                heap="384m",
                environ=owner(),
            )
            cluster.append(broker)
            broker.start()
        for broker in cluster:
            broker.wait_ready()
        return cluster

    yield make
    for cluster in clusters:
        for broker in cluster:
            broker.kill()
