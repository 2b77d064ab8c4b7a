"""A cluster dies, or swallows all that is sent to it, under its clients; a move gives it up."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from tests import moves
from tests.conftest import BrokerFactory
from tests.integration.moving import PARTITIONS, Application, Site, Source
from tests.integration.proxy import Proxy
from tests.integration.test_clients import values_on
from tests.waiting import Stopwatch, eventually

from srm.client.producer import FailoverProducer
from srm.client.routing import RoutingWatcher
from srm.domain.moves.request import MoveRequest
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.control.control_topics import compacted_spec
from srm.engine.emission import emit
from srm.engine.moves.context import ensure_topics
from srm.engine.moves.steps import RunEvent
from srm.wiring import open_move
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

SOON_S = 40.0
"""On a busy machine up to twice that: librdkafka alone waits 45 s for a coordinator that is gone,
then 38 s to close."""


class Lost:
    """P behind a proxy, its topic copied to B, and a group that has a checkpoint there."""

    def __init__(self, broker: KafkaBroker, proxy: Proxy, site: Site) -> None:
        self.broker, self.proxy, self.site = broker, proxy, site
        self.group = site.group("audit")

    def lose(self, how: str) -> None:
        if how == "killed":
            self.broker.kill()
        else:
            self.proxy.swallow()

    def copy(self, application: Application) -> None:
        """Copy records of which the group has read some, note how far it is, and stop copying."""
        site = self.site
        with site.replicating(Flow(site.p, site.b)):
            producer = Producer(site.config.client(site.p, "producer"))
            for number in range(300):
                producer.produce(site.topic, f"early-{number}", str(number))
            assert producer.flush(120) == 0
            copies = site.clusters[site.b]
            there = [TopicPartition(f"{site.p}.{site.topic}", n) for n in range(PARTITIONS)]
            eventually(lambda: sum(copies.high_watermarks(there).values()) >= 300, "all is copied")
            eventually(lambda: len(application.processed) >= 300, "the group works on P")
            eventually(
                lambda: sum(site.clusters[site.p].committed_offsets(self.group).values()) > 0,
                "committed",
            )
            with site.context(site.p, site.b) as context:
                eventually(lambda: emit(context.forward).written, "a checkpoint is written")


@pytest.fixture
def lost(
    clusters: Mapping[str, KafkaBroker], broker_factory: BrokerFactory, tmp_path: Path
) -> Iterator[Lost]:
    with Proxy().running() as proxy:
        broker = broker_factory("X", **{"advertised.listeners": f"PLAINTEXT://{proxy.address}"})
        proxy.target_port = broker.port
        through = type("Through", (), {"bootstrap": proxy.address})()
        site = Site({"P": through, "B": clusters["B"]}, tmp_path)
        with site.context(site.p, site.b) as context:
            ensure_topics(context)
        name = internal_topics.checkpoints(site.p)
        site.clusters[site.b].create_topics([compacted_spec(name, 1)])
        yield Lost(broker, proxy, site)
        for cluster in site.clusters.values():
            cluster.close()


class Transfer:
    """One transaction after the other until one is told to abort; then one more."""

    def __init__(self, site: Site, watcher: RoutingWatcher) -> None:
        self.refused: list[KafkaException] = []
        self.committed_on: list[str] = []
        self.abort_s = 0.0
        self.producer = FailoverProducer(
            {"transactional.id": f"t-{site.unique}"}, topics=[site.topic], watcher=watcher
        )
        self._topic = site.topic
        self.producer.init_transactions()
        self._begin(b"before")

    def _begin(self, value: bytes) -> None:
        self.producer.begin_transaction()
        self.producer.produce(self._topic, value)
        self.producer.flush()

    def end(self) -> None:
        try:
            self.producer.commit_transaction()
        except KafkaException as error:
            self.refused.append(error)
            aborting = Stopwatch()
            self.producer.abort_transaction()
            self.abort_s = aborting.elapsed_s
            self._begin(b"after")
            self.producer.commit_transaction()


@pytest.mark.parametrize("how", ["killed", "swallowed"])
def test_clients_work_on_the_target_at_once_when_their_cluster_is_given_up(
    lost: Lost, how: str
) -> None:
    site = lost.site
    gone: list[tuple[Stopwatch, int]] = []
    with ExitStack() as stack:
        watcher = stack.enter_context(RoutingWatcher(site.config))
        application = stack.enter_context(Application(site, lost.group, 1, watcher))
        lost.copy(application)
        source = Source(site, watcher)
        source.start()
        stack.callback(source.stop)
        transfer = Transfer(site, watcher)
        eventually(lambda: len(source.acknowledged) > 50, "payments are written on P")
        lost.lose(how)
        ending = threading.Thread(target=transfer.end, daemon=True)
        ending.start()

        def show(event: RunEvent) -> None:
            if event.step in {"verify", "report"} and not gone:
                gone.append((Stopwatch(), len(source.acknowledged)))

        with open_move(site.config, site.p, site.b, unplanned=True) as context:
            request = MoveRequest(
                "failover", site.p, site.b, (site.topic,), (lost.group,), mode="unplanned"
            )
            planned = moves.plan(context, request, f"m-{site.unique}")
            assert not planned.blocking, planned.blocking
            report = moves.carry_out(context, f"m-{site.unique}", show)
        eventually(lambda: site.b in application.clusters, "the group works on B")
        [(since_go, until_go)] = gone
        eventually(lambda: len(source.acknowledged) > until_go + 20, "payments are written on B")
        ending.join(120)
        worked_s = since_go.elapsed_s
        transfer.producer.close()
        closing = Stopwatch()

    assert worked_s < SOON_S
    assert closing.elapsed_s < SOON_S
    assert report.groups[lost.group].members_at_hold == 1
    assert application.failures == []
    assert application.clusters == {site.p, site.b}
    [refused] = transfer.refused
    assert refused.args[0].txn_requires_abort()
    assert "is unknown" in str(refused)
    assert transfer.abort_s < SOON_S
    assert values_on(site, site.b)[b"after"] == 1
    assert all("is unknown" in str(error) for error in source.failures)
    assert set(source.acknowledged[until_go:]) <= set(values_on(site, site.b))
