"""fence = acl on brokers with an authorizer: a producer that nobody redirects is shut out."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests import moves
from tests.integration.moving import Site, begin
from tests.integration.rights import Right, user_with
from tests.integration.securing import SecuredBroker
from tests.waiting import DEADLINE_S, eventually
from typer.testing import CliRunner

from srm.cli.main import app
from srm.config.model import ClusterClients
from srm.domain.moves.request import MoveRequest
from srm.engine.moves.context import ensure_topics
from srm.engine.moves.effects import set_fence
from srm.kafka.cluster import KafkaCluster
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


@pytest.fixture
def site(
    secured: SecuredBroker, clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> Iterator[Site]:
    """P has an authorizer, of which srm is a super user there; B has none."""
    with Site({"P": secured.broker, "B": clusters["B"]}, tmp_path) as made:
        yield made
        assert made.violations(tmp_path) == []


class Stray:
    """A producer that never stops, whatever anybody says; refused records are not sent again."""

    def __init__(self, topic: str, properties: dict[str, str]) -> None:
        self.written = 0
        self.refused: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(topic, properties), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _work(self, topic: str, properties: dict[str, str]) -> None:
        def delivered(error: KafkaError | None, _message: object) -> None:
            if error is None:
                self.written += 1
            else:
                self.refused.append(error.code())

        producer = Producer(properties)
        while not self._stop.wait(0.02):
            try:
                producer.produce(topic, b"stray", on_delivery=delivered)
            except KafkaException as error:  # a topic that was refused lately is refused at once
                self.refused.append(error.args[0].code())
            producer.poll(0)
        producer.flush(30)


def write_once(topic: str, properties: dict[str, str]) -> int | None:
    """Write one record; return the error code, None where it was taken."""
    said: list[KafkaError | None] = []
    producer = Producer(properties)
    producer.produce(topic, b"one", on_delivery=lambda error, _message: said.append(error))
    assert producer.flush(60) == 0
    return said[0].code() if said[0] is not None else None


def test_a_producer_that_nobody_redirects_is_shut_out_until_the_move_back(
    site: Site, secured: SecuredBroker
) -> None:
    rights = [Right("P", operation, "--topic", site.topic) for operation in ("Write", "Read")]
    user = user_with(secured, rights)
    group, unique = site.group("audit"), site.unique
    there = MoveRequest(
        *("failover", site.p, site.b, (site.topic,), (group,)),
        quiet_seconds=0.5,
        slow_writer_seconds=1.0,
        residue_seconds=0.0,
        fence="acl",
    )
    back = MoveRequest("failback", site.b, site.p, (site.topic,), (group,), quiet_seconds=0.5)
    with site.replicating():
        with Stray(site.topic, user) as stray:
            eventually(lambda: stray.written > 50, "it writes")
            consumer = Consumer({**site.config.client(site.p, "consumer"), "group.id": group})
            consumer.commit(offsets=[KafkaTopicPartition(site.topic, 0, 1)], asynchronous=False)
            consumer.close()
            with site.context(site.p, site.b) as context:
                begin(context, there, f"there-{unique}")
                report = moves.carry_out(context, f"there-{unique}")
            taken, refusals = stray.written, len(stray.refused)
            eventually(lambda: len(stray.refused) > refusals + 10, "it goes on trying")
            assert stray.written == taken

        with site.context(site.b, site.p) as context:
            begin(context, back, f"back-{unique}")
            returned = moves.carry_out(context, f"back-{unique}")

    assert report.ok, report.problems
    assert set(stray.refused) == {KafkaError.TOPIC_AUTHORIZATION_FAILED}
    assert returned.ok, returned.problems
    assert write_once(site.topic, user) is None


def test_what_a_crash_has_left_is_lifted_by_a_command_and_others_rules_stay(
    site: Site, secured: SecuredBroker
) -> None:
    user = user_with(secured, [Right("P", "Write", "--topic", site.topic)])
    theirs = AclBinding(
        ResourceType.TOPIC,
        f"{site.topic}x",
        ResourcePatternType.LITERAL,
        "User:*",
        "*",
        AclOperation.WRITE,
        AclPermissionType.DENY,
    )
    admin = AdminClient({"bootstrap.servers": secured.broker.bootstrap})
    for created in admin.create_acls([theirs]).values():
        created.result(DEADLINE_S)
    with site.context(site.p, site.b) as context:
        ensure_topics(context)
        wanted = [site.topic, f"{site.topic}x"]
        eventually(lambda: context.source.write_denials(wanted) == {f"{site.topic}x"}, "their rule")
        set_fence(context.source, wanted, "killed", context.now_ms())
        assert context.source.write_denials(wanted) == set(wanted)
    assert write_once(site.topic, user) == KafkaError.TOPIC_AUTHORIZATION_FAILED

    lifted = CliRunner().invoke(
        app, ["failover", "unfence", site.p, "-t", site.topic, "--config", str(site.path)]
    )

    assert lifted.exit_code == 0, lifted.output
    assert f"writes are allowed again to {site.topic}" in lifted.stdout
    assert site.clusters[site.p].write_denials(wanted) == {f"{site.topic}x"}
    eventually(lambda: write_once(site.topic, user) is None, "it may write again")


@pytest.mark.parametrize(
    ("rights", "said"),
    [
        ([], "srm's principal lacks Describe on the cluster (docs/security.md)"),
        (["Describe"], "srm's principal lacks Alter on the cluster (docs/security.md)"),
        (["Alter"], ""),
    ],
)
def test_a_right_that_the_fence_needs_is_named(secured: SecuredBroker, rights, said) -> None:
    user = user_with(secured, [Right("P", operation, "--cluster") for operation in rights])
    with KafkaCluster("P", ClusterClients.alike(user)) as cluster:
        assert cluster.no_fence_reason().endswith(said)
        assert bool(cluster.no_fence_reason()) == bool(said)


def test_a_cluster_without_an_authorizer_cannot_be_fenced(site: Site) -> None:
    reason = site.clusters[site.b].no_fence_reason()

    assert reason == f"the brokers of {site.b} have no authorizer"
