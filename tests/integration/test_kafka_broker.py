"""The embedded broker keeps data, port and cluster id through every way of ending it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import javaproperties
import psutil
import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.leaders import partition
from tests.waiting import eventually

from srm.config.model import ClusterClients
from srm.domain.names.topics import TopicPartition
from srm.errors import StackError, UnavailableError
from srm.kafka.cluster import KafkaCluster
from srm_lab.stack.jars import KAFKA_VERSION, cache_folder, jar_folder
from srm_lab.stack.java import archive_options, class_archive, find_java
from srm_lab.stack.kafka import KafkaBroker, archive_broker_classes

pytestmark = pytest.mark.kafka


def write_one(broker: KafkaBroker, topic: str, replicas: tuple[int, ...] = (1,)) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    new = NewTopic(topic, 1, replica_assignment=[list(replicas)])
    admin.create_topics([new])[topic].result(120)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    producer.produce(topic, b"value")
    assert producer.flush(120) == 0


def read_one(broker: KafkaBroker, topic: str) -> bytes | None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"{topic}-readers",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([topic])
        found: list[Message] = []

        def reads() -> bool:
            message = consumer.poll(
                1
            )  # an error, of a broker that has not heard of the topic, is no end
            if message is not None and message.error() is None:
                found.append(message)
            return bool(found)

        eventually(reads, f"the record of {topic}")
        return found[0].value()
    finally:
        consumer.close()


def broker_ids(broker: KafkaBroker) -> dict[str, str]:
    """Return what the storage of a broker knows of itself."""
    return dict(javaproperties.loads((broker.home / "data" / "meta.properties").read_text()))


def features(broker: KafkaBroker) -> list[str]:
    """Return the feature levels that a broker wrote into its log when it began."""
    text = broker.log.read_text()
    found = sorted(set(re.findall(r"FeatureLevelRecord setting .* to \S+", text)))
    assert found
    return found


@pytest.mark.faults
def test_a_killed_or_stopped_broker_starts_again_with_its_data_on_its_port(
    broker_factory: Callable[..., KafkaBroker],
) -> None:
    broker = broker_factory("X", **{"log.retention.ms": "3600000"})
    bootstrap = broker.bootstrap
    write_one(broker, "kept")

    broker.kill()
    assert not broker.running
    assert not broker.ready
    broker.start()
    broker.wait_ready()
    assert broker.bootstrap == bootstrap
    assert read_one(broker, "kept") == b"value"

    broker.restart()
    assert broker.bootstrap == bootstrap
    eventually(lambda: broker.ready, "it is ready")


def test_a_broker_that_cannot_start_says_why_in_one_line(
    broker_factory: Callable[..., KafkaBroker],
) -> None:
    with pytest.raises(StackError, match=r"Kafka cluster X.*num\.io\.threads"):
        broker_factory("X", **{"num.io.threads": "none"})


def test_storage_is_formatted_as_kafkas_tool_does_it(
    broker_factory: Callable[..., KafkaBroker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tool runs once for a version: the second broker's storage comes from the cache."""
    jars = f"kafka-{KAFKA_VERSION}"
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / jars).symlink_to(cache_folder() / jars)
    monkeypatch.setenv("SRM_CACHE_DIR", str(tmp_path / "cache"))

    first, second = (broker_factory(alias) for alias in ("X", "Y"))

    ids = [broker_ids(broker) for broker in (first, second)]
    assert ids[0].keys() == ids[1].keys()
    assert {name for name in ids[0] if ids[0][name] == ids[1][name]} == {"version", "node.id"}
    kept = (tmp_path / "cache" / f"{jars}-bootstrap.checkpoint").read_bytes()
    for broker in (first, second):
        assert (broker.home / "data" / "bootstrap.checkpoint").read_bytes() == kept
    assert features(first) == features(second)


@pytest.mark.faults
def test_a_cluster_of_three_keeps_its_data_without_one_broker_and_takes_it_back(
    cluster_factory: Callable[..., list[KafkaBroker]],
) -> None:
    first, second, third = cluster_factory("X", 3)
    write_one(first, "kept", replicas=(2, 3, 1))
    write_one(first, "away", replicas=(2,))
    assert partition(first, "kept").leader == second.node_id

    second.kill()
    eventually(
        lambda: partition(third, "kept").leader in {first.node_id, third.node_id},
        "a leader that lives",
    )
    assert read_one(third, "kept") == b"value"
    props = {"bootstrap.servers": third.bootstrap}
    with KafkaCluster("X", ClusterClients.alike(props)) as cluster:
        eventually(lambda: cluster.topics()["away"].leaderless == {0: (2,)}, "no leader")
        reading = cluster.compacted_topic("away")
        with pytest.raises(UnavailableError, match="no leader yet; retry, or start broker 2"):
            reading.read()
        cluster.commit_idle("group", {TopicPartition("away", 0): 7})
        assert cluster.committed_offsets("group") == {TopicPartition("away", 0): 7}
        assert not cluster.topics()["kept"].leaderless

    second.start()
    second.wait_ready()
    eventually(lambda: set(partition(third, "kept").isrs) == {1, 2, 3}, "all replicas in sync")


def test_a_version_without_a_lock_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"no Kafka 3\.0\.0 here"):
        KafkaBroker(tmp_path, "X", version="3.0.0").start()


def test_a_broker_maps_its_classes_from_the_archive_that_was_written_once(
    broker_factory: Callable[..., KafkaBroker],
) -> None:
    archive_broker_classes()

    broker = broker_factory()

    assert broker.pid is not None
    mapped = {place.path for place in psutil.Process(broker.pid).memory_maps()}
    archive = class_archive(f"kafka-{KAFKA_VERSION}", find_java(), jar_folder())
    assert str(archive) in mapped


def test_java_says_nothing_on_standard_output_of_an_archive_that_does_not_fit(
    tmp_path: Path,
) -> None:
    archive_broker_classes()
    archive = class_archive(f"kafka-{KAFKA_VERSION}", find_java(), jar_folder())

    def said(*options: str) -> str:
        other_jars = ["-cp", str(tmp_path / "nothing.jar")]
        command = [str(find_java().program), *options, *other_jars, "-version"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "Unable to use shared archive" in said(f"-XX:SharedArchiveFile={archive}")
    assert said(*archive_options(archive)) == ""
