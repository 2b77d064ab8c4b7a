"""The rights of clients in docs/security.md: enough, and each one that is missing is named."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from tests.acknowledgements import acks_on
from tests.integration.rights import Right, documented, user_with
from tests.integration.securing import SecuredBroker
from tests.integration.test_clients import has_started
from tests.waiting import eventually

from srm.client.consumer import FailoverConsumer
from srm.client.producer import FailoverProducer
from srm.client.routing import RoutingWatcher
from srm.client.settings import load_client_config
from srm.config.model import ClusterClients, Config
from srm.engine.cluster_ports import TopicSpec
from srm.engine.control.control_topics import CLIENTS_TOPICS, compacted_spec
from srm.kafka.cluster import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

RIGHTS = documented(commands="app")


@pytest.fixture(scope="module")
def secured(secured: SecuredBroker) -> SecuredBroker:
    """Fill a broker that is both clusters: the users show which of them a client means."""
    plain = {"bootstrap.servers": secured.broker.bootstrap}
    with KafkaCluster("P", ClusterClients.alike(plain)) as cluster:
        names = ("payments", "B.payments", "P.payments")
        cluster.create_topics([TopicSpec(name, 1, 1, {}) for name in names])
        cluster.create_topics([compacted_spec(name, 1) for name in CLIENTS_TOPICS])
    producer = Producer(plain)
    for name in names:
        producer.produce(name, b"there")
    assert producer.flush(60) == 0
    return secured


def config_with(secured: SecuredBroker, rights: tuple[Right, ...], home: Path) -> Config:
    lines = ["clusters = P, B"]
    for alias in ("P", "B"):
        user = user_with(secured, [right for right in rights if right.cluster == alias])
        if alias == "B":  # one address may not stand for two clusters
            user["bootstrap.servers"] = user["bootstrap.servers"].replace("127.0.0.1", "localhost")
        lines += [f"{alias}.{name} = {value}" for name, value in user.items()]
    file = home / "srm-client.properties"
    file.write_text("\n".join(lines))
    return load_client_config(file)


def consume(config: Config, home: str) -> None:
    """Read one record of the topic and one of its copy, and commit them."""
    conf = {"group.id": "app", "enable.auto.commit": False}
    copy = "B.payments" if home == "P" else "P.payments"
    with FailoverConsumer(conf, clusters=config, home=home) as consumer:
        consumer.subscribe(["payments"])
        seen: set[str] = set()

        def read() -> bool:
            message = consumer.poll(0.5)
            if message is not None and message.error() is not None:
                raise KafkaException(message.error())
            seen.update([message.topic()] if message is not None else [])
            return seen >= {"payments", copy}

        eventually(read, "both are read")


def commit(config: Config, home: str) -> None:
    conf = {"group.id": "app"}
    with FailoverConsumer(conf, clusters=config, home=home) as consumer:
        consumer.subscribe(["payments"])

        def read() -> bool:
            message = consumer.poll(0.5)
            if message is not None and message.error() is not None:
                raise KafkaException(message.error())
            return message is not None

        eventually(read, "read")
        consumer.commit(asynchronous=False)


def produce(config: Config, home: str) -> None:
    with FailoverProducer({}, clusters=config, home=home) as producer:
        producer.produce("payments", b"1")
        assert producer.flush(60) == 0


def transact(config: Config, home: str) -> None:
    conf = {"transactional.id": "app"}
    with FailoverProducer(conf, clusters=config, topics=["payments"], home=home) as producer:
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("payments", b"1")
        producer.commit_transaction(60)


def watch(config: Config, home: str) -> None:
    watcher = RoutingWatcher(config, home)
    try:
        eventually(lambda: has_started(watcher), "a cluster is followed")
    finally:
        watcher.close()


USES: dict[str, tuple[Callable[[Config, str], None], str]] = {
    "Read topic payments": (consume, "Read on topic payments"),
    "Write topic payments": (produce, "Write on topic payments"),
    "Read topic copies": (consume, r"Read on topic [PB]\.payments"),
    "Read group app": (commit, "Read on group app"),
    "Read topic __srm-routing": (watch, "Read on topic __srm-routing"),
    "Write topic __srm-clients": (produce, "Write on topic __srm-clients"),
    "Write transactional-id app": (transact, "Write on transactional id app"),
}


def use_of(right: Right) -> tuple[Callable[[Config, str], None], str]:
    text = f"{right.operation} {right.option.strip('-')} {right.name}"
    return USES[re.sub(r"[PB]\.payments", "copies", text)]


@pytest.mark.parametrize("home", ["P", "B"])
def test_the_documented_rights_are_enough_for_a_client(
    secured: SecuredBroker, tmp_path: Path, home: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_with(secured, RIGHTS, tmp_path)
    with caplog.at_level(logging.WARNING):
        for work in (consume, commit, produce, transact, watch):
            work(config, home)
    assert "grant" not in caplog.text


@pytest.mark.parametrize("missing", RIGHTS, ids=str)
def test_a_right_that_a_client_misses_is_named(
    secured: SecuredBroker, tmp_path: Path, missing: Right, caplog: pytest.LogCaptureFixture
) -> None:
    """In what the client raises, or in its log where it works on without.

    What is only logged is written in the background: a client that is closed soon may miss it.
    """
    config = config_with(secured, documented(commands="app", without=str(missing)), tmp_path)
    work, expected = use_of(missing)
    told: list[Any] = []

    def is_named() -> bool:
        try:
            work(config, missing.cluster)
        except KafkaException as error:
            told.append(error.args[0].str())
        text = "\n".join([*told, caplog.text])
        return re.search(rf"grant {expected} to the application's principal", text) is not None

    with caplog.at_level(logging.WARNING):
        eventually(is_named, f"{expected} in what is said, not only: {told}")


@pytest.mark.parametrize(
    "missing",
    [one for one in RIGHTS if one.operation == "Write" and one.name in {"payments", "app"}],
    ids=str,
)
def test_a_denied_producer_announces_the_right_that_it_misses(
    secured: SecuredBroker, tmp_path: Path, missing: Right
) -> None:
    config = config_with(secured, documented(commands="app", without=str(missing)), tmp_path)
    conf = {"client.id": f"denied-{uuid.uuid4().hex}"}
    conf |= {"transactional.id": "app"} if missing.name == "app" else {}
    plain = ClusterClients.alike({"bootstrap.servers": secured.broker.bootstrap})

    def announced() -> bool:
        acks = acks_on(cluster)
        said = [str(ack.unwritten) for ack in acks if ack.client == conf["client.id"]]
        return re.search(rf"grant {use_of(missing)[1]} to the application", str(said)) is not None

    with KafkaCluster("P", plain) as cluster, ExitStack() as stack:
        arguments = {"clusters": config, "topics": ["payments"], "home": missing.cluster}
        producer = stack.enter_context(FailoverProducer(conf, **arguments))
        if missing.name == "app":
            with pytest.raises(KafkaException):
                producer.init_transactions(60)
        else:
            with suppress(KafkaException):  # refused at once, or by its report
                producer.produce("payments", b"1", on_delivery=lambda *_: None)
        eventually(announced, "announced")
