"""What the report of a move says about time, repetition and producers, on real brokers."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from confluent_kafka import Producer
from tests import moves
from tests.acknowledgements import acks_on
from tests.faults.campaign.brokers import delete_topics
from tests.integration.moving import PARTITIONS, Application, Site, begin, pass_gate
from tests.waiting import DEADLINE_S, eventually
from typer.testing import CliRunner

from srm.cli.main import app
from srm.client import routing
from srm.client.producer import FailoverProducer
from srm.client.routing import Moment, RoutingWatcher
from srm.domain.moves.announcements import Ack
from srm.domain.moves.request import MoveRequest
from srm.engine.cluster_ports import TopicSpec
from srm.engine.moves.context import MoveContext

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

HOUR_MS = 3_600_000


@pytest.fixture
def late_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the clocks of all clients back by an hour."""

    def late() -> Moment:
        return Moment(time.time_ns() // 1_000_000 - HOUR_MS, time.monotonic())

    monkeypatch.setattr(routing, "now", late)


def produce(site: Site, alias: str, count: int) -> None:
    producer = Producer(site.config.client(alias, "producer"))
    for number in range(count):
        producer.produce(site.topic, str(number), partition=0)
    assert producer.flush(60) == 0


def said(context: MoveContext, group: str) -> list[Ack]:
    """Return what members of a group say of their work on the target."""
    acks = acks_on(context.target)
    return [ack for ack in acks if ack.subject == f"group:{group}" and ack.state != "held"]


def shown(site: Site, move_id: str) -> dict[str, Any]:
    """Return what srm failover report says."""
    asked = ["failover", "report", move_id, "--config", str(site.path), "--json"]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def lose_topic(site: Site, context: MoveContext, move_id: str, producer: FailoverProducer) -> None:
    """Delete the topic that a producer has followed to; the report says so until it is back."""
    delete_topics(site.servers[site.b], [site.topic])
    written: list[tuple[str, object]] = []
    for number in range(1_000):
        producer.produce(
            site.topic,
            f"late-{number}",
            partition=0,
            on_delivery=lambda error, message: written.append((message.cluster, error)),
        )
    eventually(lambda: producer.count_unwritten(site.topic) == 1_000, "the records are counted")
    said = (
        f"1 producer (shop) followed and cannot write: writing to {site.topic} on cluster {site.b}"
    )

    def problems() -> tuple[str, ...]:
        return moves.watch_residue(context, move_id).problems

    eventually(lambda: any(one.startswith(said) for one in problems()), "it is reported")
    report = moves.kept_report(context, move_id).report
    unwritten, missing = sorted(report.problems)
    assert unwritten == (
        f"{said}: Broker: Unknown topic or partition (UNKNOWN_TOPIC_OR_PART); 1,000 records waiting"
    )
    assert f"topic {site.topic} does not exist on {site.b}, where a move has led" in missing
    assert report.result.verdict == "not clean"

    context.target.create_topics([TopicSpec(site.topic, PARTITIONS, 1, {})])
    assert producer.flush(DEADLINE_S) == 0
    assert (written, producer.count_unwritten(site.topic)) == ([(site.b, None)] * 1_000, 0)
    eventually(lambda: moves.watch_residue(context, move_id).ok, "they are written")


@pytest.mark.usefixtures("late_clocks")
def test_records_and_producers_after_the_report_are_found_while_the_source_is_watched(
    site: Site,
) -> None:
    """Its times do not count by the clients' clocks: with those it was nothing, or an hour."""
    group = site.group("g")
    produce(site, site.p, 50)
    with (
        site.replicating(),
        RoutingWatcher(site.config) as watcher,
        Application(site, group, 1, watcher) as working,
        FailoverProducer({"client.id": "shop"}, topics=[site.topic], watcher=watcher) as producer,
        site.context(site.p, site.b) as context,
    ):
        producer.start()
        eventually(lambda: len(working.processed) == 50, "the group works on P")
        request = MoveRequest(
            "failover", site.p, site.b, (site.topic,), (group,), quiet_seconds=0.2
        )
        move_id = f"late-{site.unique}"
        began = time.monotonic()
        begin(context, request, move_id)
        pass_gate(context, move_id)
        eventually(lambda: said(context, group), "the client says that it works")
        eventually(lambda: moves.verify(context, move_id).done, "resumed")
        first = moves.report(context, move_id)
        took = time.monotonic() - began
        acks = said(context, group)
        assert first.ok
        lose_topic(site, context, move_id, producer)
        produce(site, site.p, 7)
        found = shown(site, move_id)
        kept = moves.kept_report(context, move_id).report

    assert all(ack.time_ms < first.created_ms for ack in acks)
    assert first.groups[group].assigned_seconds is not None
    assert 0 < first.groups[group].assigned_seconds <= took + 1
    assert (found["residue"], found["ok"]) == ({site.topic: 7}, False)
    assert found["residue_until_ms"] == first.residue_until_ms
    assert (kept.ok, kept.residue_over) == (False, False)
    assert any("7 records" in problem for problem in kept.problems)
