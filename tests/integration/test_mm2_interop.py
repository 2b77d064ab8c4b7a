"""Replicate until caught up, then ask Kafka's own MirrorClient and RemoteClusterUtils."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.integration.kafka_tools import run_tool
from tests.replicating import configure
from tests.waiting import eventually

from srm.config.model import ClusterClients
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import TopicSpec
from srm.kafka.cluster import KafkaCluster
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.logs import first_difference, read_log

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.timeout(900),
]

PROBE = Path(__file__).with_name("RemoteClusterProbe.java")
INTERNAL = Path(__file__).with_name("InternalTopicsProbe.java")


def _srm(*arguments: str) -> str:
    srm = Path(sys.executable).parent / "srm"
    done = subprocess.run([srm, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("policy", ["Default", "Identity"])
def test_existing_tools_see_hops_remote_topics_and_translated_offsets(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path, policy: str
) -> None:
    unique = uuid.uuid4().hex[:6]
    source, target, topic, group = f"P{unique}", f"B{unique}", f"pay{unique}", f"g{unique}"
    config = tmp_path / "srm.properties"
    configure(
        config,
        {source: clusters["P"].bootstrap, target: clusters["B"].bootstrap},
        f"{target}->{source}.enabled = true",
        f"topics = {topic}",
        f"groups = {group}",
        f"replication.policy.class = {policy}ReplicationPolicy",
    )
    remote = f"{source}.{topic}" if policy == "Default" else topic
    props = {"bootstrap.servers": clusters["P"].bootstrap}
    with KafkaCluster(source, ClusterClients.alike(props)) as cluster:
        cluster.create_topics([TopicSpec(topic, 1, 1, {}), TopicSpec("heartbeats", 1, 1, {})])
    producer = Producer(props)
    for number in range(1000):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(60) == 0
    with KafkaCluster(source, ClusterClients.alike(props)) as cluster:
        cluster.commit_idle(group, {TopicPartition(topic, 0): 700})

    flows = ("--flow", f"{source}->{target}", "--flow", f"{target}->{source}")
    replicate = "replicate", "--config", str(config), *flows, "--until-caught-up", "--json"
    _srm(*replicate)
    _srm(*replicate)  # the way back reads copies, which did not exist when it first started
    _srm("checkpoints", "emit", "--config", str(config), "--flow", f"{source}->{target}")

    written = read_log(clusters["P"].bootstrap, topic, 0)
    copied = read_log(clusters["B"].bootstrap, remote, 0)
    if policy == "Default":
        assert first_difference(written, copied) is None
    else:  # their headers show where they come from
        assert [record.value for _, record in copied] == [record.value for _, record in written]

    place = clusters["B"].bootstrap, source, group
    java = f"org.apache.kafka.connect.mirror.{policy}ReplicationPolicy"
    options = "replication.policy.class", java, "source.cluster.alias", source
    probe = run_tool(str(PROBE), *place, *options, check=False)
    seen = set(probe.stdout.splitlines())
    # Claims after the first one may have left markers before it.
    [there] = [offset for offset, record in copied if record.value == b"700"]
    assert there >= 700
    assert {
        "hops 1",
        "upstream true",
        f"remote {source}.heartbeats",
        f"remote {remote}",
        f"offset {remote}-0 {there}",
    } <= seen, probe.stdout + probe.stderr


def test_a_flow_alone_has_heartbeats_at_its_source_and_hides_its_state(
    broker_factory: Callable[..., KafkaBroker], tmp_path: Path
) -> None:
    """MirrorClient counts hops from a source without a flow to it, and lists no topic of ours."""
    p, b = broker_factory("P"), broker_factory("B")
    config = tmp_path / "srm.properties"
    configure(config, {"P": p.bootstrap, "B": b.bootstrap}, "topics = orders.*")
    props = {"bootstrap.servers": p.bootstrap}
    with KafkaCluster("P", ClusterClients.alike(props)) as cluster:
        cluster.create_topics([TopicSpec("orders.internal", 1, 1, {})])
    python = sys.executable
    command = [python, "-m", "srm.cli.main", "replicate", "--config", str(config), "--flow", "P->B"]
    remote = ("remote", b.bootstrap)

    def seen() -> set[str]:
        return set(run_tool(str(INTERNAL), *remote, check=False).stdout.split())

    with subprocess.Popen(command) as replicator:
        try:
            eventually(lambda: "P.heartbeats" in seen(), "the copy of the heartbeats")
        finally:
            replicator.terminate()
    hops = run_tool(str(PROBE), b.bootstrap, "P", "none", check=False).stdout

    assert "hops 1" in hops.splitlines()
    assert seen() == {"P.heartbeats", "P.orders.internal"}
