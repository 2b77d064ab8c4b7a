"""Settings of a client reach the requests that they are named for: brokers say who asked what.

Each kind of client logs in as a user that has no rights but its own (docs/security.md).
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.conftest import owner
from tests.integration import rights
from tests.integration.copying import CopyLab
from tests.integration.kafka_tools import run_tool
from tests.integration.rights import Right
from tests.replicating import configure, one_broker_as_two_clusters
from tests.waiting import eventually

from srm.config.model import Config
from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.control import topic_sync
from srm.engine.groups import checkpoints, group_sync
from srm.kafka.state.driver_log import KafkaDriverLog
from srm.replication.copy.slot import SlotSpec
from srm.replication.driver.discovery import Discovery
from srm.wiring import open_flow
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

USERS = ("operator", "keeper", "reader", "follower", "writer", "scribe")
GROUP = "analytics"
Asked = set[tuple[str, str]]
"""Principals with the client.id that they came under."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Both clusters are one broker, which logs each request with the name of who sent it."""
    users = " ".join(f'user_{name}="{name}s"' for name in USERS)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    made = KafkaBroker(
        tmp_path_factory.mktemp("settings") / "broker",
        "X",
        listeners={"SASL": "SASL_PLAINTEXT"},
        server_props={
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": f"{module} required {users};",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
        environ=owner(),
    )
    try:
        made.start()
        made.wait_ready()
        tool = ["kafka.admin.ConfigCommand", "--bootstrap-server", made.bootstrap]
        tool += ["--entity-type", "broker-loggers", "--entity-name", "1", "--alter"]
        run_tool(*tool, "--add-config", "kafka.request.logger=DEBUG")
        with one_broker_as_two_clusters():
            yield made
    finally:
        made.kill()


class OwnClients(CopyLab):
    """A flow whose slot is made of a properties file."""

    config_file: Config

    def spec(self, slot: str) -> SlotSpec:
        made = self.config_file
        source, target = self.flow.source, self.flow.target
        sides = [made.cluster_clients(alias, self.flow) for alias in (source, target)]
        spec = SlotSpec(self.config, slot, *sides)
        sent: SlotSpec = pickle.loads(pickle.dumps(spec))  # noqa: S301 - our own, as Spark sends it
        return sent


def grant(broker: KafkaBroker, user: str, *operations: tuple[str, str, str]) -> None:
    """Grant operations on an option of kafka-acls with a name, a prefix where it ends in ``*``."""
    wanted = [
        Right("X", operation, option, name.removesuffix("*") or "*", name[1:].endswith("*"))
        for some, option, name in operations
        for operation in some.split()
    ]
    rights.grant(AdminClient({"bootstrap.servers": broker.bootstrap}), user, wanted)


def grant_each_its_part(broker: KafkaBroker, lab: CopyLab, topic: str) -> None:
    """Give the users the rights of the page's section about users of their own."""
    state, copies, back = "__srm-*", f"{lab.flow.source}.*", f"{lab.flow.target}.*"
    syncs = internal_topics.offset_syncs(lab.flow.target)
    commits = "__consumer_offsets"
    grant(broker, "reader", *(("Read", "--topic", name) for name in (topic, state, commits)))
    grant(broker, "scribe", ("Write", "--topic", syncs))
    grant(
        broker,
        "keeper",
        ("Describe DescribeConfigs", "--topic", topic),
        ("Describe", "--topic", back),
        ("Describe", "--topic", state),
        ("Describe", "--topic", commits),
        ("Create", "--topic", syncs),
        ("Describe", "--group", "*"),
    )
    grant(broker, "follower", ("Read", "--topic", state), ("Read", "--topic", copies))
    grant(
        broker,
        "writer",
        ("Read Write", "--topic", copies),
        ("Write", "--topic", "heartbeats"),
        ("Write", "--topic", state),
        ("Write", "--transactional-id", "srm-*"),
    )
    grant(
        broker,
        "operator",
        ("Create Alter AlterConfigs Read", "--topic", copies),
        ("Read", "--topic", topic),
        ("Create Describe", "--topic", "heartbeats"),
        ("Create Describe DescribeConfigs", "--topic", state),
        ("Read", "--group", "*"),
        ("DescribeConfigs", "--cluster", "kafka-cluster"),
    )


def login(prefix: str, user: str) -> str:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return (
        f'{prefix}sasl.jaas.config = {module} required username="{user}" password="{user}s";\n'
        f"{prefix}client.id = {user}-client\n"
    )


@pytest.fixture(scope="module")
def copied(
    broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> tuple[OwnClients, AssignedPartition]:
    lab = OwnClients(broker.bootstrap, broker.bootstrap)
    source, target, flow = lab.flow.source, lab.flow.target, lab.flow
    port = broker.address("SASL").rpartition(":")[2]
    file = Path(tmp_path_factory.mktemp("file"), "srm.properties")
    [partition] = lab.topic()
    lab.config_file = configure(
        file,
        {source: f"127.0.0.1:{port}", target: f"localhost:{port}"},
        "security.protocol = SASL_PLAINTEXT",
        "sasl.mechanism = PLAIN",
        "heartbeats.replication.enabled = false",
        "sync.group.offsets.enabled = true",
        "groups = analytics",
        f"topics = {partition.topic}",
        login("", "operator"),
        login(f"{source}.admin.", "keeper"),
        login(f"{target}.consumer.", "follower"),
        login(f"{flow}.consumer.", "reader"),
        login(f"{flow}.producer.", "writer"),
        login(f"{source}.producer.", "scribe"),
    )
    grant_each_its_part(broker, lab, partition.topic)
    producer = lab.producer()
    for number in range(50):
        producer.produce(partition.topic, b"%d" % number, partition=0)
    assert producer.flush(60) == 0
    lab.assign("0", [partition])
    with lab.running():
        lab.wait_until_copied([partition])
    lab.assert_equal([partition])
    return lab, partition


def asked(broker: KafkaBroker, request: str, about: str) -> Asked:
    """Return who sent a request that speaks of a topic, or of something else, by the broker's log.

    The test's own clients come in by another listener. A request is logged after it was answered.
    """
    eventually(lambda: in_log(broker, request, about), f"a request {request} about {about}")
    return in_log(broker, request, about)


def in_log(broker: KafkaBroker, request: str, about: str) -> Asked:
    """Return who sent a request, as far as the log says now."""
    found: Asked = set()
    *whole, _being_written = broker.log.read_text().split("\n")
    for line in whole:
        _, marked, rest = line.partition("Completed request:")
        if not marked or about not in rest:
            continue
        entry = json.loads(rest[: rest.rindex("}") + 1])
        header = entry["requestHeader"]
        if header["requestApiKeyName"] == request and entry["listener"] == "SASL":
            found.add((entry["principal"].removeprefix("User:"), header["clientId"]))
    return found


def test_source_records_are_fetched_as_the_flows_consumer(broker, copied):
    _, partition = copied

    assert asked(broker, "FETCH", partition.topic_id) == {("reader", "reader-client")}


def test_copies_are_written_as_the_flows_producer(broker, copied):
    lab, partition = copied
    claim = f"srm-{lab.flow}-{partition.target_topic}-0"

    assert asked(broker, "PRODUCE", f'"{partition.target_topic}"') == {("writer", "writer-client")}
    assert asked(broker, "INIT_PRODUCER_ID", claim) == {("writer", "writer-client")}


def test_state_and_offset_syncs_are_written_as_the_producer_of_their_cluster(broker, copied):
    lab, _ = copied
    state = internal_topics.replication(lab.flow.source)
    syncs = internal_topics.offset_syncs(lab.flow.target)

    assert asked(broker, "PRODUCE", f'"{state}"') == {("writer", "writer-client")}
    assert asked(broker, "PRODUCE", f'"{syncs}"') == {("scribe", "scribe-client")}


@pytest.mark.usefixtures("copied")
def test_what_only_administrators_ask_is_asked_as_the_admin_client(broker):
    assert ("operator", "operator-client") in asked(broker, "DESCRIBE_CONFIGS", "resources")
    assert in_log(broker, "CREATE_TOPICS", internal_topics.LEDGER) <= {
        ("operator", "operator-client")
    }


def test_users_with_their_own_part_of_the_rights_are_enough_for_a_flow(copied):
    lab, partition = copied
    original, copy = (TopicPartition(name, 0) for name in (partition.topic, partition.target_topic))
    lab.source.commit_idle(GROUP, {original: 20})
    target = lab.config_file.cluster_clients(lab.flow.target, lab.flow)
    driver = KafkaDriverLog(lab.flow, target)

    with open_flow(lab.config_file, lab.flow) as context:
        Discovery(context).prepare()
        topics = topic_sync.sync(context)
        emitted = checkpoints.emit(context)
        synced = group_sync.sync(context)
    driver.fence()
    driver.read()
    driver.publish({b"driver": b"{}"})
    driver.close()

    assert topics.selected == 1
    assert (emitted.states, emitted.errors) == ({"translated": 1}, {})
    assert (synced.applied, synced.errors) == (1, {})
    assert copy in lab.target.committed_offsets(GROUP)
