"""Processes that come too late, on real brokers: what they have begun never counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from tests import moves
from tests.integration.moving import Site, hold_and_go, route_clients
from tests.overrides import overrides
from tests.waiting import eventually

from srm.client.routing import RoutingWatcher
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import Route
from srm.domain.names import internal_topics
from srm.engine.control.control_topics import CONTROL_ID
from srm.engine.moves.context import MoveContext, ensure_topics
from srm.engine.moves.history import RoutingTables
from srm.kafka.state.writers import KafkaControlWriter
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]
READ = 50


@pytest.fixture
def site(clusters: Mapping[str, KafkaBroker], tmp_path: Path) -> Iterator[Site]:
    with Site(clusters, tmp_path, topics=2) as made:
        for topic in made.topics:
            fill(made, topic, made.group(topic))
        yield made


def fill(site: Site, topic: str, group: str) -> None:
    """Write 100 records, of which a group has read 50."""
    producer = Producer(site.config.client(site.p, "producer"))
    for number in range(100):
        producer.produce(topic, f"{number}", partition=0)
    assert producer.flush(60) == 0
    consumer = Consumer({**site.config.client(site.p, "consumer"), "group.id": group})
    place = KafkaTopicPartition(topic, 0, READ)
    eventually(lambda: committed(consumer, place), "a commit")
    consumer.close()


def committed(consumer: Consumer, place: KafkaTopicPartition) -> bool:
    try:
        consumer.commit(offsets=[place], asynchronous=False)
    except Exception:  # noqa: BLE001 -- the coordinator is loading
        return False
    return True


def planned(site: Site, context: MoveContext, number: int = 0) -> str:
    """Plan the move of one topic's group, when all of it is copied."""
    topic = site.topics[number]
    request = MoveRequest(
        "failover", site.p, site.b, (topic,), (site.group(topic),), quiet_seconds=0.2
    )
    move_id = f"move{number}-{site.unique}"
    eventually(lambda: not moves.plan(context, request, move_id).warnings, "all is copied")
    return move_id


def clients_at(site: Site, context: MoveContext) -> set[tuple[str, str]]:
    """Where a client that starts now goes, whichever cluster it reads."""
    tables = RoutingTables.read(context)
    ours = {subject for subject in tables.merge if site.unique in subject}
    assert tables.source is not None
    assert {s: tables.target.routes[s] for s in ours} == {s: tables.source.routes[s] for s in ours}
    return {(tables.merge[s].cluster, tables.merge[s].state) for s in ours}


@dataclass
class Stall:
    """Stalls a process after brokers have the records of its n-th transaction."""

    meanwhile: dict[int, Callable[[], None]] = field(default_factory=dict)
    count: int = 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        write = KafkaControlWriter.write

        def stalling(
            writer: KafkaControlWriter,
            tables: Mapping[str, Mapping[bytes, bytes | None]],
            before_commit: Callable[[], None] = lambda: None,
        ) -> dict[str, int]:
            self.count += 1
            others = self.meanwhile.pop(self.count, lambda: None)

            def pause() -> None:
                before_commit()
                others()

            return write(writer, tables, pause)

        monkeypatch.setattr(KafkaControlWriter, "write", stalling)


@pytest.fixture
def stall(monkeypatch: pytest.MonkeyPatch) -> Stall:
    made = Stall()
    made.install(monkeypatch)
    return made


@pytest.mark.parametrize("transaction", [1, 2])
def test_a_hold_that_lands_after_go_is_refused_by_the_brokers(
    site: Site, stall: Stall, transaction: int, tmp_path: Path
) -> None:
    with (
        site.replicating(),
        site.context(site.p, site.b) as context,
        site.context(site.p, site.b) as other,
    ):
        move_id = planned(site, context)
        stall.meanwhile[stall.count + transaction] = lambda: hold_and_go(other, move_id)
        assert moves.hold(context, move_id).step == "gone"
        assert clients_at(site, context) == {(site.b, "go")}
        assert site.violations(tmp_path) == []
        with RoutingWatcher(site.config) as started_later:
            assert started_later.route(f"topic:{site.topic}").cluster == site.b
            assert started_later.route(f"topic:{site.topic}").state == "go"


# ----- the lease, as clients count it


@dataclass
class Clock:
    """Seconds that pass when they are told to."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


def hold_for(site: Site, subject: str, beat: int, lease_ms: int = 60_000) -> None:
    with site.context(site.p, site.b) as context:
        for cluster in (context.target, context.source):
            writer = cluster.control_writer(CONTROL_ID)
            route = Route(1, site.p, "hold", "m", lease_ms=lease_ms, beat=beat)
            writer.write({internal_topics.ROUTING: {subject.encode(): route.value()}})
            writer.close()


def renewed(watcher: RoutingWatcher, subject: str, beat: int) -> None:
    """Wait until a client has read a beat: its lease is counted from then."""
    eventually(lambda: watcher._routes[subject].beat == beat, f"beat {beat} of {subject}")


@pytest.fixture
def topics(site: Site) -> None:
    with site.context(site.p, site.b) as context:
        ensure_topics(context)


@pytest.fixture
def clock(topics: None) -> Clock:  # noqa: ARG001 -- clients look for the topics
    return Clock()


def test_a_hold_that_nobody_renews_ends_and_a_later_beat_holds_again(
    site: Site, clock: Clock
) -> None:
    subject = f"group:lease-{site.unique}"
    hold_for(site, subject, 1)
    with RoutingWatcher(site.config, clock=clock) as watcher:
        held = watcher.route(subject)
        assert held.state == "hold"
        clock.seconds = 59
        hold_for(site, subject, 2)
        renewed(watcher, subject, 2)
        assert watcher.route(subject) == held, "a renewal is no news"
        clock.seconds = 118.9
        assert watcher.wait_change(subject, held, 2.0) == held
        clock.seconds = 119.1
        lapsed = watcher.wait_change(subject, held, 90)
        assert (lapsed.state, lapsed.cluster) == ("go", site.p)

        hold_for(site, subject, 3)
        assert watcher.wait_change(subject, lapsed, 90).state == "hold"
        route_clients(site, subject, site.b, "go")
        gone = watcher.wait_change(subject, held, 90)
        assert (gone.state, gone.cluster) == ("go", site.b)


def test_a_hold_does_not_lapse_while_it_is_open_what_has_been_written(
    site: Site, clock: Clock
) -> None:
    """A renewal may be in the log that cannot be read yet."""
    subject = f"group:lease-{site.unique}"
    hold_for(site, subject, 1)
    producer = Producer(
        {**site.config.client(site.p, "producer"), "transactional.id": f"open-{site.unique}"}
    )
    producer.init_transactions(30)
    with RoutingWatcher(site.config, clock=clock) as watcher:
        held = watcher.route(subject)
        producer.begin_transaction()
        route = Route(1, site.p, "hold", "m", lease_ms=60_000, beat=2)
        producer.produce(internal_topics.ROUTING, route.value(), subject.encode(), partition=0)
        assert producer.flush(60) == 0
        clock.seconds = 61
        assert watcher.wait_change(subject, held, 3.0) == held
        producer.commit_transaction(30)
        renewed(watcher, subject, 2)
        assert watcher.route(subject) == held, "it was renewed"
        clock.seconds = 122
        assert watcher.wait_change(subject, held, 90).state == "go"


def test_a_hold_of_an_earlier_version_has_no_end(site: Site, clock: Clock) -> None:
    subject = f"group:lease-{site.unique}"
    hold_for(site, subject, 0, lease_ms=0)
    with RoutingWatcher(site.config, clock=clock) as watcher:
        held = watcher.route(subject)
        clock.seconds = 1e6
        assert watcher.wait_change(subject, held, 2.0) == held


@pytest.mark.usefixtures("topics")
def test_clients_are_stamped_by_the_brokers_clock(site: Site) -> None:
    topic = internal_topics.ROUTING
    for cluster in site.clusters.values():
        assert overrides(cluster, [topic])[topic]["message.timestamp.type"] == "LogAppendTime"
