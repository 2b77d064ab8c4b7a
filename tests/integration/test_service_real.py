"""The service over real brokers: it agrees with Kafka's own tools, and sees news within seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from tests.integration.kafka_tools import run_tool
from tests.integration.moving import Site
from tests.served import served
from tests.waiting import eventually

from srm.domain.names.topics import Flow
from srm.engine.groups.checkpoints import emit
from srm.service.app import create_app
from srm.service.views.views import Views
from srm.wiring import open_flow

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


@contextmanager
def serving(site: Site) -> Iterator[httpx.Client]:
    """Serve the flows of a site as ``srm-service`` does, in a thread."""
    app = create_app(Views(site.config))
    with (
        served(app) as address,
        httpx.Client(base_url=address, trust_env=False, timeout=60) as client,
    ):
        eventually(lambda: client.get("/health").is_success, "it has looked at both clusters")
        yield client


@pytest.fixture
def service(site: Site) -> Iterator[httpx.Client]:
    with serving(site) as client:
        yield client


def produce(site: Site, records: int) -> None:
    producer = Producer(site.config.client(site.p, "producer"))
    for number in range(records):
        producer.produce(site.topic, b"%d" % number, key=str(number))
    producer.flush()


def ends(site: Site, alias: str, topic: str) -> dict[int, int]:
    """Ask Kafka's own tool for the ends of a topic's logs."""
    servers = site.config.client(alias, "admin")["bootstrap.servers"]
    printed = run_tool(
        "org.apache.kafka.tools.GetOffsetShell",
        *("--bootstrap-server", servers, "--topic", topic, "--time", "-1"),
    ).stdout
    rows = [line.rsplit(":", 2) for line in printed.splitlines() if line.count(":") == 2]
    return {int(number): int(end) for _, number, end in rows}


def described(site: Site, alias: str, group: str) -> dict[int, tuple[int, int]]:
    """Ask Kafka's own tool for the committed offsets of a group, and its lag."""
    servers = site.config.client(alias, "admin")["bootstrap.servers"]
    printed = run_tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", servers, "--describe", "--group", group, "--offsets"),
    ).stdout
    rows = [line.split() for line in printed.splitlines() if group in line]
    return {int(row[2]): (int(row[3]), int(row[5])) for row in rows if row[2].isdigit()}


def test_offsets_and_groups_are_those_of_kafkas_own_tools(
    site: Site, service: httpx.Client
) -> None:
    flow, path = Flow(site.p, site.b), f"/v2/flows/{site.p}/{site.b}"
    produce(site, 300)
    group = site.group("audit")
    consumer = Consumer({**site.config.client(site.p, "consumer"), "group.id": group})
    consumer.commit(
        offsets=[KafkaPartition(site.topic, number, 5 + number) for number in range(3)],
        asynchronous=False,
    )
    consumer.close()
    with site.replicating(flow):

        def caught_up() -> bool:
            found = service.get(f"{path}/topics/{site.topic}")
            return found.is_success and found.json()["lag"] == 0 and found.json()["copied"] >= 300

        eventually(caught_up, "all is copied, and seen to be")
        with open_flow(site.config, flow) as context:
            emit(context)
        eventually(
            lambda: service.get(f"{path}/groups/{group}").is_success, "its checkpoint is seen"
        )

    rows = service.get(f"{path}/topics/{site.topic}/partitions").json()["items"]
    assert {row["partition"]: row["source_end"] for row in rows} == ends(site, site.p, site.topic)
    copies = ends(site, site.b, f"{site.p}.{site.topic}")
    assert {row["partition"]: row["target_next"] for row in rows} == copies
    answers: list[dict[str, Any]] = []

    def is_known() -> bool:
        answers.append(service.get(f"{path}/groups/{group}").json())
        return not answers[-1]["unread"]

    eventually(is_known, "both clusters say what the group has committed")
    positions = answers[-1]["positions"]
    told_of = {row["partition"]: (row["committed"], row["lag"]) for row in positions}
    assert told_of == described(site, site.p, group)
    # Nobody runs the group, and it has committed nothing since its checkpoint.
    assert [row["records_read_again"] for row in positions] == [0, 0, 0]

    def told() -> list[str]:
        every = service.get(f"{path}/events").json()["items"]
        return [one["text"] for one in every if one["kind"] == "state"]

    eventually(lambda: told() and told()[0].startswith("STOPPED"), "the replicator has ended")
    assert told()[0].endswith("s)"), "how long it ran is told with it"
