"""Consumers that never join their group, and moves whose steps are processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from tests import moves
from tests.integration.moving import Site, begin, pass_gate
from tests.waiting import eventually

from srm.domain.moves.request import MoveRequest

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


@pytest.fixture
def copied(site: Site) -> Iterator[Site]:
    """200 payments on P, which are copied to B, and a group that has read 50 of them."""
    producer = Producer(site.config.client(site.p, "producer"))
    for number in range(200):
        producer.produce(site.topic, f"{number}", partition=0)
    assert producer.flush(60) == 0
    with assigned(site) as consumer:
        commit(site, consumer, 50)
        with site.replicating():
            yield site


def assigned(site: Site) -> Consumer:
    """Assign a partition by itself, as Flink and Spark do."""
    consumer = Consumer(
        {
            **site.config.client(site.p, "consumer"),
            "group.id": site.group("flink"),
            "enable.auto.commit": False,
        }
    )
    consumer.assign([KafkaTopicPartition(site.topic, 0, 0)])
    return consumer


def commit(site: Site, consumer: Consumer, offset: int) -> None:
    consumer.commit(offsets=[KafkaTopicPartition(site.topic, 0, offset)], asynchronous=False)


def test_a_consumer_that_never_joins_is_named_before_and_after_go(copied: Site) -> None:
    site, move_id = copied, f"flink-{copied.unique}"
    group = site.group("flink")
    request = MoveRequest("failover", site.p, site.b, (site.topic,), (group,), quiet_seconds=0.5)
    with site.context(site.p, site.b) as context, assigned(site) as consumer:
        begin(context, request, move_id)
        offsets = iter(range(51, 200))

        def is_named() -> bool:
            commit(site, consumer, next(offsets))
            reasons = moves.wait_status(context, move_id).blocking
            return any(f"group {group} has no members on {site.p}" in one for one in reasons)

        eventually(is_named, "the gate names the group")
        pass_gate(context, move_id)
        commit(site, consumer, 199)
        eventually(lambda: moves.verify(context, move_id).done, "verified")
        [problem] = moves.report(context, move_id).problems

    assert problem.startswith(
        f"group {group} was read on {site.p} after go by a consumer that assigns"
    )
    assert f"{site.topic}-0 from " in problem
    assert "to 199" in problem


@pytest.mark.parametrize("is_ready", [True, False], ids=["ready", "marked as ready"])
def test_steps_in_processes_of_their_own_watch_the_source_once(
    copied: Site, is_ready: bool
) -> None:
    """What the wait has seen rest is trusted while nothing has moved since."""
    site, move_id = copied, f"steps-{copied.unique}"
    request = MoveRequest("failover", site.p, site.b, (site.topic,), (site.group("flink"),))
    paused: list[float] = []

    def pause(seconds: float) -> None:
        paused.append(seconds)
        time.sleep(seconds)

    with site.context(site.p, site.b) as context:
        begin(context, request, move_id)
    if is_ready:
        with site.context(site.p, site.b) as context:
            eventually(lambda: moves.wait_status(context, move_id).ready, "ready")
    with site.context(site.p, site.b) as context:
        assert moves.apply_and_go(replace(context, pause=pause), move_id).step == "gone"

    assert len(paused) == (0 if is_ready else 1)
