"""librdkafka clients that lost sight of all brokers are replaced (librdkafka issue 5301)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.conftest import BrokerFactory
from tests.waiting import eventually

from srm.config.model import ClusterClients
from srm.engine.cluster_ports import TopicSpec
from srm.errors import UnavailableError
from srm.kafka.admin.clients import Clients, is_stranded
from srm.kafka.cluster import KafkaCluster
from srm.kafka.state import writers
from srm.kafka.state.writers import KafkaStateLog
from srm.kafka.tables import topic_tail
from srm.kafka.tables.compacted import KafkaCompactedTopic
from srm.kafka.tables.topic_tail import KafkaTopicTail
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka]

TOPIC = f"stranded-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def props(clusters: Mapping[str, KafkaBroker]) -> dict[str, str]:
    props = {"bootstrap.servers": clusters["P"].bootstrap}
    with KafkaCluster("P", ClusterClients.alike(props)) as cluster:
        cluster.create_topics([TopicSpec(TOPIC, 1, 1, {"cleanup.policy": "compact"})])
    return props


def test_a_cluster_that_names_no_broker_strands_a_client_for_good(
    broker_factory: BrokerFactory,
) -> None:
    """The broker's heartbeats are so rare that its controller takes it for dead every 3 s."""
    rare = {"broker.heartbeat.interval.ms": "3000", "broker.session.timeout.ms": "1500"}
    props = {"bootstrap.servers": broker_factory("X", **rare).bootstrap, "log_level": "0"}
    clients = [AdminClient(props) for _ in range(8)]  # not every one, and not every time

    stranded: list[AdminClient] = []

    def one_is_stranded() -> bool:
        stranded[:] = [c for c in clients if not _lists(c) and is_stranded(c, TOPIC)]
        return bool(stranded)

    eventually(one_is_stranded, "a client is stranded")
    eventually(lambda: _lists(AdminClient(props)), "the broker answers a new client")

    assert is_stranded(stranded[0], TOPIC)
    eventually(lambda: not is_stranded(AdminClient(props), TOPIC), "a new client is not stranded")


def _lists(client: AdminClient) -> bool:
    time.sleep(0.04)  # polled without a pause, librdkafka keeps the connection that saves it
    try:
        client.list_topics(timeout=0.5)
    except KafkaException:
        return False
    return True


def test_a_call_that_used_its_time_is_repeated_with_a_new_client(
    props: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = Clients("P", ClusterClients.alike(props), timeout_s=240)
    used: list[AdminClient] = []
    passed: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + sum(passed), sleep=passed.append)
    monkeypatch.setattr("srm.kafka.admin.clients.time", clock)

    def request(limit_s: float) -> int:
        used.append(clients.admin())
        if len(used) == 1:
            passed.append(limit_s)  # as for a client that waits for a broker to turn up
            raise UnavailableError("no broker")
        return len(used[-1].list_topics(timeout=limit_s).brokers)

    assert clients.call("listing topics", request) == 1
    assert used[0] is not used[1]
    clients.close()


def test_a_tail_goes_on_where_its_stranded_consumer_was(
    props: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = Clients("P", ClusterClients.alike(props))
    table = KafkaCompactedTopic(clients, TOPIC, 0)
    table.write({b"a": b"1"})
    with KafkaTopicTail(props, TOPIC) as followed:
        eventually(lambda: (b"a", b"1") in followed.poll(1), "the first record is followed")
        before = followed._open()
        monkeypatch.setattr(topic_tail, "_SILENCE_S", 0.5)
        monkeypatch.setattr(topic_tail, "is_stranded", lambda *_: followed._open() is before)
        eventually(lambda: not followed.poll(0.6) and followed._open() is not before, "it is new")
        table.write({b"b": b"2"})

        seen: list[tuple[bytes, bytes | None]] = []
        eventually(lambda: seen.extend(followed.poll(1)) or seen, "it goes on")
        assert seen == [(b"b", b"2")]
    clients.close()


def test_a_state_log_whose_producer_is_stranded_begins_a_new_one(
    props: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is sent before it has to be: else it may have arrived when its producer is given up.
    late = {**writers.STATE_RECORDS, "linger.ms": 60_000}
    monkeypatch.setattr(writers, "STATE_RECORDS", late)
    log = KafkaStateLog("P", props)
    before = log._session.producer
    monkeypatch.setattr(writers, "is_stranded", lambda producer, _topic: producer is before)
    log.write(TOPIC, b"a", b"1")
    with pytest.raises(UnavailableError, match="brokers are gone"):
        log.flush(0)

    log.write(TOPIC, b"a", b"2")
    log._session.producer.flush(60)
    log.flush(60)

    clients = Clients("P", ClusterClients.alike(props))
    assert KafkaCompactedTopic(clients, TOPIC, 0).read()[b"a"] == b"2"
    clients.close()
