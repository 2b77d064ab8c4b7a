"""Settings of a client reach the requests that they are named for: brokers say who asked what."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import owner
from tests.integration.copying import CopyLab
from tests.integration.kafka_tools import run_tool

from srm.config.loader import load_config
from srm.config.model import Config
from srm.domain import internal_topics
from srm.domain.replication_records import AssignedPartition
from srm.replication.slot import SlotSpec
from srm.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

USERS = ("operator", "reader", "writer", "scribe")
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
        },
        environ=owner(),
    )
    try:
        made.start()
        made.wait_ready()
        tool = ["kafka.admin.ConfigCommand", "--bootstrap-server", made.bootstrap]
        tool += ["--entity-type", "broker-loggers", "--entity-name", "1", "--alter"]
        run_tool(*tool, "--add-config", "kafka.request.logger=DEBUG")
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
    file.write_text(
        f"clusters = {source}, {target}\n"
        f"{source}.bootstrap.servers = 127.0.0.1:{port}\n"
        f"{target}.bootstrap.servers = localhost:{port}\n"
        "security.protocol = SASL_PLAINTEXT\n"
        "sasl.mechanism = PLAIN\n"
        f"{flow}.enabled = true\n"
        + login("", "operator")
        + login(f"{flow}.consumer.", "reader")
        + login(f"{flow}.producer.", "writer")
        + login(f"{source}.producer.", "scribe")
    )
    lab.config_file = load_config(file)
    [partition] = lab.topic()
    producer = lab.producer()
    for number in range(50):
        producer.produce(partition.topic, b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    lab.assign("0", [partition])
    with lab.running():
        lab.wait_until_copied([partition])
    lab.assert_equal([partition])
    return lab, partition


def asked(broker: KafkaBroker, request: str, about: str) -> Asked:
    """Return who sent a request that speaks of a topic, or of something else, by the broker's log.

    The test's own clients come in by another listener.
    """
    found: Asked = set()
    for line in broker.log.read_text().splitlines():
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
    assert asked(broker, "DESCRIBE_CONFIGS", "resources") == {("operator", "operator-client")}
