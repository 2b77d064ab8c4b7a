"""The brokers of a cluster are found again, whatever has become of those that were known."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest
from tests.loops import happens, pass_time, run_still
from tests.unit.kafka.wire.metadata_brokers import Cluster, MetadataBroker
from tests.waiting import DEADLINE_S

from srm.domain.names.topics import TopicPartition
from srm.errors import UnavailableError
from srm.kafka.admin.clients import BrokerCalls
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.cluster import WireCluster
from srm.kafka.wire.requests import FIND_COORDINATORS
from srm.replication.ports import Leader

ANYTHING = FIND_COORDINATORS(1, ["x"])
NEVER_MS = "100000"
"""A request timeout that no test waits for."""


def brokers_at(*bootstrap: MetadataBroker, timeout_ms: str = NEVER_MS) -> Brokers:
    return Brokers("P", properties(*bootstrap, timeout_ms=timeout_ms))


def properties(*bootstrap: MetadataBroker, timeout_ms: str = NEVER_MS) -> dict[str, str]:
    servers = ",".join(f"127.0.0.1:{broker.port}" for broker in bootstrap)
    return {
        "bootstrap.servers": servers,
        "socket.timeout.ms": timeout_ms,
        "socket.connection.setup.timeout.ms": timeout_ms,
    }


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await scenario()

    asyncio.run(bounded())


def ports(brokers: Brokers) -> set[int]:
    return {address[1] for address in brokers._nodes.values()}


def test_when_all_known_brokers_are_gone_the_bootstrap_servers_are_asked_again() -> None:
    """They were replaced on other ports in an outage; only the name in front of them stayed."""

    async def scenario() -> None:
        cluster = Cluster()
        front = await Cluster().broker(9)
        front.cluster = cluster
        old = [await cluster.broker(node) for node in (1, 2)]
        brokers = brokers_at(front)
        await brokers.look()
        assert ports(brokers) == {broker.port for broker in old}
        await brokers.query(1, ANYTHING)
        for broker in old:
            broker.stop()
        new = [await cluster.broker(node) for node in (1, 2)]

        await brokers.look()

        assert ports(brokers) == {broker.port for broker in new}
        await brokers.query(1, ANYTHING)
        brokers.close()

    play(scenario)


def test_a_bootstrap_name_is_resolved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = ["127.0.0.9"]  # nobody there any more

    async def scenario() -> None:
        cluster = Cluster()
        broker = await cluster.broker(1)
        brokers = Brokers("P", {"bootstrap.servers": f"kafka.example.org:{broker.port}"})

        async def getaddrinfo(host: str, port: int, **_: object) -> list[object]:
            address = addresses[0] if host == "kafka.example.org" else host
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        with pytest.raises(UnavailableError, match=r"kafka\.example\.org"):
            await brokers.look()
        addresses[0] = "127.0.0.1"
        await brokers.look()
        assert brokers.nodes == (1,)
        brokers.close()

    play(scenario)


def test_a_silent_broker_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("srm.kafka.wire.brokers._NEXT_BROKER_S", 0.05)

    async def scenario() -> None:
        cluster = Cluster()
        silent, other = [await cluster.broker(node) for node in (1, 2)]
        brokers = brokers_at(other)
        await brokers.look()
        await brokers.query(1, ANYTHING)
        silent.silent = True

        for _ in range(3):  # whichever is asked first
            await brokers.look(["T"])
            await brokers.query_any(ANYTHING)
        brokers.close()

    play(scenario)


def test_a_known_address_that_belongs_to_another_cluster_by_now_is_not_believed() -> None:
    async def scenario() -> None:
        cluster, stranger = Cluster("one"), Cluster("other")
        front = await Cluster().broker(9)
        front.cluster = cluster
        broker = await cluster.broker(1)
        brokers = brokers_at(front)
        await brokers.look()
        broker.stop()
        await stranger.broker(1, port=broker.port)
        again = await cluster.broker(1)

        await brokers.look()

        assert ports(brokers) == {again.port}
        brokers.close()

    play(scenario)


@pytest.mark.parametrize("is_a_broker", [True, False])
def test_a_bootstrap_server_of_another_cluster_says_that_ours_was_rebuilt(
    *, is_a_broker: bool
) -> None:
    """It may be a broker itself, or an address in front of them; what we know is of the old one."""

    async def scenario() -> None:
        cluster, rebuilt = Cluster("one"), Cluster("other")
        front = MetadataBroker(cluster)
        broker = await cluster.broker(1)
        await front.start(0)
        wire = WireCluster("P", properties(broker if is_a_broker else front))
        await wire.start()
        assert wire.replaced_by == ""

        broker.stop()
        front.cluster = rebuilt
        await rebuilt.broker(1, port=broker.port)
        wire.leaders_changed()
        with pytest.raises(UnavailableError, match="now belongs to another cluster, other"):
            await wire.leader(TopicPartition("Payments", 0))

        assert wire.replaced_by == "other"
        await wire.close()
        front.stop()

    play(scenario)


def test_calls_meet_a_rebuilt_cluster_after_one_refusal() -> None:
    """A replicator runs on while a site is rebuilt: it has to emit checkpoints of the new one."""

    async def scenario() -> None:
        broker = await Cluster("one").broker(1)
        calls = BrokerCalls("P", properties(broker))

        async def seen() -> str:
            answer = await asyncio.to_thread(calls.run, lambda brokers: brokers.look(), DEADLINE_S)
            return str(answer["cluster_id"])

        assert await seen() == "one"
        broker.stop()
        await Cluster("other").broker(1, port=broker.port)
        with pytest.raises(UnavailableError, match="now belongs to another cluster, other"):
            await seen()
        assert await seen() == "other"
        calls.close()

    play(scenario)


def test_many_who_need_a_connection_to_a_silent_broker_wait_for_one_attempt() -> None:
    """One after the other, the last of 300 partitions would wait for 300 attempts."""

    async def scenario() -> None:
        cluster = Cluster()
        broker = await cluster.broker(1)
        brokers = brokers_at(broker, timeout_ms="3000")
        await brokers.look()
        broker.silent = True
        accepted = broker.accepted
        tries = [asyncio.create_task(brokers.connection(1, "produce")) for _ in range(300)]
        await happens(lambda: broker.accepted > accepted, "an attempt")
        await pass_time(3)

        assert {type(one.exception()) for one in tries} == {UnavailableError}
        assert broker.accepted - accepted == 1
        brokers.close()

    run_still(scenario())


def test_a_leader_is_asked_for_once_by_all_who_want_to_know() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        broker = await cluster.broker(1)
        wire = WireCluster("P", properties(broker))
        await wire.start()
        first, second = TopicPartition("T", 0), TopicPartition("U", 0)
        broker.asked.clear()

        assert (
            await asyncio.gather(*[wire.leader(p) for p in (first, second) * 50])
            == [Leader(1, 0)] * 100
        )
        assert await wire.leader(first) == Leader(1, 0)
        assert broker.asked == [["T", "U"]]
        cluster.leader = 2
        wire.leaders_changed()
        assert (await wire.leader(second)).node == 2
        assert broker.asked == [["T", "U"], ["U"]]
        await wire.close()

    play(scenario)


def test_a_question_that_left_before_leaders_changed_does_not_answer_later_ones() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        broker = await cluster.broker(1)
        wire = WireCluster("P", properties(broker))
        await wire.start()
        partition = TopicPartition("T", 0)
        before = asyncio.create_task(wire.leader(partition))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # it has left
        wire.leaders_changed()
        broker.asked.clear()
        after = asyncio.create_task(wire.leader(partition))

        assert (await before, await after) == (Leader(1, 0), Leader(1, 0))
        assert broker.asked == [["T"], ["T"]]
        await wire.close()

    play(scenario)


@pytest.mark.parametrize("moved", [False, True])
def test_a_coordinator_that_has_come_back_is_found(*, moved: bool) -> None:
    """It was away, or at another address, when the brokers were looked at last."""

    async def scenario() -> None:
        cluster = Cluster()
        first = await cluster.broker(1)
        gone = await cluster.broker(2) if moved else None
        wire = WireCluster("P", properties(first))
        await wire.start()
        if gone is not None:
            gone.stop()
        cluster.coordinator = 2
        back = await cluster.broker(2)

        assert (await wire.init_producer_id("a claim")).id == 7
        assert back.claimed == 1
        assert back.claim_ms <= 10_000  # brokers may allow no longer transactions
        await wire.close()

    play(scenario)


def test_a_broker_that_does_not_say_its_versions_is_unavailable_for_now() -> None:
    """Without them every request would count as one that the broker does not know."""

    async def scenario() -> None:
        broker = await Cluster().broker(1)
        brokers = brokers_at(broker)
        broker.versions_error = -1

        with pytest.raises(UnavailableError, match="request for its versions with error -1"):
            await brokers.look()

        broker.versions_error = 0
        await brokers.look()
        assert brokers.nodes == (1,)
        brokers.close()

    play(scenario)
