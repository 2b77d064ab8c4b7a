"""Three clusters in each arrangement: what is copied where, and a group that moves over each hop.

Of two clusters: test_move.py (both ways), test_policies.py (under one name, and for good). Fan-in
into one name: test_fan_in.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from tests.conftest import owner
from tests.integration.one_name import NamedTopic
from tests.replicating import configure, replicating
from tests.waiting import eventually

from srm.config.model import Config
from srm.domain.names.topics import Flow
from srm.engine.cluster_ports import TopicSpec
from srm.engine.emission import emit
from srm.engine.groups.checkpoints import CheckpointSummary
from srm.wiring import open_flow
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration, pytest.mark.timeout(900)]

RECORDS = 50
COMMITTED = 30


@dataclass(frozen=True)
class Hop:
    """A flow between clusters A, B and C, and the prefixes of what it copies at its source."""

    source: str
    target: str
    prefixes: str = ""

    @property
    def origin(self) -> str:
        """The cluster whose own records it copies."""
        return self.prefixes.split(".")[-1] or self.source


class Sites(NamedTopic):
    """Clusters A, B and C under aliases of one test; each origin has a topic of its own."""

    def __init__(self, brokers: tuple[KafkaBroker, ...], home: Path, hops: tuple[Hop, ...]) -> None:
        self.unique = uuid.uuid4().hex[:6]
        self.hops = hops
        self.aliases = {name: f"{name}{self.unique}" for name in "ABC"}
        self.topic = f"T{self.unique}"
        servers = {
            alias: broker.bootstrap
            for alias, broker in zip(self.aliases.values(), brokers, strict=True)
        }
        a_to_b = Flow(self.aliases["A"], self.aliases["B"])
        self.config: Config = configure(
            home / "srm.properties",
            servers,
            f"{a_to_b}.enabled = {str(a_to_b in self.flows).lower()}",
            *(f"{flow}.enabled = true" for flow in self.flows if flow != a_to_b),
            *(f"topics = .*{self.topic}", "groups = .*"),
            "heartbeats.replication.enabled = false",
        )
        for name in sorted({hop.origin for hop in hops}):
            with self.cluster(self.aliases[name]) as cluster:
                cluster.create_topics([TopicSpec(self.topic, 1, 1, {})])
            self.produce(self.aliases[name], records_of(name))

    @property
    def flows(self) -> list[Flow]:
        """Flows of the hops."""
        return [Flow(self.aliases[hop.source], self.aliases[hop.target]) for hop in self.hops]

    def topic_at(self, *names: str) -> str:
        """Return the name of a topic that came by these clusters, the last one first."""
        return ".".join((*(self.aliases[name] for name in names), self.topic))

    def topics(self, name: str) -> set[str]:
        """Return which topics of this test a cluster has, without what is unique in it."""
        with self.cluster(self.aliases[name]) as cluster:
            found = [topic for topic in cluster.topics() if topic.endswith(self.topic)]
        return {topic.replace(self.unique, "") for topic in found}

    def is_there(self, hop: Hop) -> bool:
        """Whether a hop has copied each record of its origin once, in order."""
        with suppress(KafkaException):  # the topic does not exist yet
            return self.values(*self.copy_of(hop)) == records_of(hop.origin)
        return False

    def original_of(self, hop: Hop) -> str:
        """Return the topic that a hop copies."""
        return self.topic_at(*filter(None, hop.prefixes.split(".")))

    def copy_of(self, hop: Hop) -> tuple[str, str]:
        """Return the alias of the target of a hop, and the topic there."""
        return self.aliases[hop.target], f"{self.aliases[hop.source]}.{self.original_of(hop)}"

    def wait_until_copied(self) -> None:
        """Wait for what each hop copies."""
        for hop in self.hops:
            eventually(lambda hop=hop: self.is_there(hop), f"{hop} is copied")  # type: ignore[misc]

    def move_over(self, hop: Hop, group: str, *also: str) -> None:
        """Move a group from the source of a hop to its target; it continues at its record."""
        source, original = self.aliases[hop.source], self.original_of(hop)
        if self.committed(source, group, original) is None:
            self.commit(source, group, original, COMMITTED)
        self.move(source, self.aliases[hop.target], group, topics=(original, *also))
        assert self.still_to_read(hop, group) == records_of(hop.origin)[COMMITTED:]

    def still_to_read(self, hop: Hop, group: str) -> list[str]:
        """Return the records at the target of a hop that a group has not read."""
        target, copy = self.copy_of(hop)
        at = self.committed(target, group, copy)
        assert at is not None
        return self.values(target, copy, at)


def _is_emitted(found: CheckpointSummary) -> bool:
    return (found.states, found.unchanged) == ({"translated": 1}, 1)


def records_of(name: str) -> list[str]:
    """Return the records that a cluster's own topic has."""
    return [f"{name}-{number}" for number in range(RECORDS)]


@pytest.fixture(scope="module")
def third(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Give a third cluster, shared by the tests of this module."""
    broker = KafkaBroker(tmp_path_factory.mktemp("third"), "C", environ=owner())
    try:
        broker.start()
        broker.wait_ready()
        yield broker
    finally:
        broker.kill()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[KafkaBroker]:
    """Give a cluster that a test may kill."""
    broker = KafkaBroker(tmp_path / "mortal", "M", environ=owner())
    try:
        broker.start()
        broker.wait_ready()
        yield broker
    finally:
        broker.kill()


@pytest.fixture
def brokers(
    clusters: Mapping[str, KafkaBroker], third: KafkaBroker
) -> tuple[KafkaBroker, KafkaBroker, KafkaBroker]:
    return clusters["P"], clusters["B"], third


def test_groups_move_to_the_cluster_that_two_are_copied_to(
    brokers: tuple[KafkaBroker, ...], tmp_path: Path
) -> None:
    first, second = Hop("A", "C"), Hop("B", "C")
    fan_in = Sites(brokers, tmp_path, (first, second))

    with replicating(fan_in.config, *fan_in.flows):
        fan_in.wait_until_copied()
        fan_in.move_over(first, "of-a")
        fan_in.move_over(second, "of-b")

    assert fan_in.topics("C") == {"T", "A.T", "B.T"}


def test_a_group_moves_to_one_of_the_clusters_that_its_own_is_copied_to(
    brokers: tuple[KafkaBroker, ...], tmp_path: Path
) -> None:
    first, second = Hop("A", "B"), Hop("A", "C")
    fan_out = Sites(brokers, tmp_path, (first, second))

    with replicating(fan_out.config, *fan_out.flows):
        fan_out.wait_until_copied()
        fan_out.move_over(second, "to-c")

    assert fan_out.topics("B") == {"A.T"}
    assert fan_out.topics("C") == {"T", "A.T"}


def test_a_group_moves_along_a_chain_and_continues_at_its_record(
    brokers: tuple[KafkaBroker, ...], tmp_path: Path
) -> None:
    first, second = Hop("A", "B"), Hop("B", "C", "A")
    chain = Sites(brokers, tmp_path, (first, second))

    with replicating(chain.config, *chain.flows):
        chain.wait_until_copied()
        chain.move_over(first, "g")
        chain.move_over(second, "g", chain.topic)

    assert chain.topics("B") == {"T", "A.T"}
    assert chain.topics("C") == {"T", "B.T", "B.A.T"}


def test_a_group_leaves_the_dead_cluster_of_a_ring_whose_other_flows_continue(
    brokers: tuple[KafkaBroker, ...], mortal: KafkaBroker, tmp_path: Path
) -> None:
    near, far, home = Hop("A", "B"), Hop("B", "C"), Hop("C", "A")
    ring = Sites((*brokers[:2], mortal), tmp_path, (near, far, home))

    with replicating(ring.config, *ring.flows):
        ring.wait_until_copied()
        eventually(lambda: ring.topics("A") == {"T", "C.T", "C.B.T"}, "both came around")
        ring.commit(ring.aliases["C"], "g", ring.topic, COMMITTED)
        with open_flow(ring.config, ring.flows[2]) as context:
            # The driver may write an earlier place after this emission.
            eventually(lambda: _is_emitted(emit(context, [ring.group("g")])), "its checkpoint")
        mortal.kill()
        ring.leave(ring.flows[2].source, ring.flows[2].target, "g")
        ring.produce(ring.aliases["A"], ["later"])
        place, copy = ring.copy_of(near)
        eventually(lambda: ring.values(place, copy)[-1] == "later", "A is copied to B")

    assert ring.still_to_read(home, "g") == records_of("C")[COMMITTED:]
    assert ring.topics("A") == {"T", "C.T", "C.B.T"}, "nothing goes around twice"
    assert ring.topics("B") == {"T", "A.T", "A.C.T"}
