"""Each safety mechanism, and the damage without it: the tests, and the checker, can fail.

Every scenario is played twice: with the mechanism in place nothing is wrong; with a mutant in its
place the checker finds the damage that the mechanism exists for.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pytest
from tests.conftest import owner
from tests.faults import owners
from tests.faults.campaign.brokers import delete_topics
from tests.faults.owners import Bench
from tests.integration.copying import CopyLab
from tests.waiting import until

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.names.topics import topic_id_bytes
from srm.engine.cluster_ports import TopicSpec
from srm.errors import IntegrityError
from srm.kafka.state.slot_state import MapStarts
from srm.kafka.state.writers import KafkaStateLog
from srm.replication import claim as claims
from srm.replication import codes, partition, report
from srm.replication.claim import Claim
from srm.replication.mapping.map_writer import MapLog
from srm.replication.mapping.starts import Start
from srm.replication.ports import Place
from srm.replication.resume.resume import Resumed, resume
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.faults]

Patch = pytest.MonkeyPatch


@pytest.fixture
def bench(clusters: Mapping[str, KafkaBroker]) -> Bench:
    return Bench(CopyLab(clusters["P"].bootstrap, clusters["B"].bootstrap))


# ----- claims shut out older owners


async def _an_older_owner_sends_late(bench: Bench) -> list[int]:
    async with bench.connected():
        older = bench.owner()
        await older.claim()
        bench.write(10, 10)
        await older.fetch()  # stopped here, with batches in its hands
        newer = bench.owner()
        await newer.claim()
        await newer.copy_all()
        newer.report()
        return [produced.error for produced in await older.send()]


def test_an_older_owner_is_refused_once_a_newer_one_has_claimed(bench: Bench) -> None:
    errors = asyncio.run(_an_older_owner_sends_late(bench))

    assert set(errors) <= codes.FENCED
    assert bench.damage() == []


def test_without_a_common_claim_the_older_owner_writes_everything_twice(
    bench: Bench, monkeypatch: Patch
) -> None:
    names = itertools.count()
    monkeypatch.setattr(
        claims, "transactional_id", lambda flow, target: f"{flow}-{target}-{next(names)}"
    )

    errors = asyncio.run(_an_older_owner_sends_late(bench))

    assert errors == [0]
    assert bench.damage()


# ----- resume walks both logs


async def _a_crash_before_the_map_was_written(bench: Bench) -> None:
    async with bench.connected():
        bench.write(10)
        crashed = bench.owner()
        await crashed.claim()
        await crashed.copy_all()
        crashed.report()
        bench.write(10, 10)
        await crashed.copy_all()  # killed here: neither map nor position know of the last two
        bench.write(10)
        heir = bench.owner()
        await heir.claim()
        await heir.copy_all()
        heir.report()


def test_resume_finds_what_the_map_does_not_know(bench: Bench) -> None:
    asyncio.run(_a_crash_before_the_map_was_written(bench))

    assert bench.damage() == []


def test_without_the_walk_the_last_records_before_a_crash_are_copied_twice(
    bench: Bench, monkeypatch: Patch
) -> None:
    async def no_walk(*known: Any) -> Resumed:
        found = await resume(*known)
        start = known[2]
        return Resumed(start.source_next, found.target_next)

    monkeypatch.setattr(owners, "resume", no_walk)

    asyncio.run(_a_crash_before_the_map_was_written(bench))

    assert bench.damage()


# ----- sequence numbers keep the order of batches in flight


async def _a_refused_batch_with_another_one_behind_it(bench: Bench) -> list[int]:
    remote = bench.assigned.target_topic
    bench.lab.target.alter_topic_configs({remote: {"max.message.bytes": "1000"}})
    async with bench.connected():
        owner = bench.owner()
        await owner.claim()
        for size in (5000, 10):
            bench.write(size)
            await owner.fetch()
        errors = [produced.error for produced in await owner.send()]
        bench.lab.target.alter_topic_configs({remote: {"max.message.bytes": "100000"}})
        return errors


async def _an_heir_copies_the_rest(bench: Bench) -> None:
    async with bench.connected():
        heir = bench.owner()
        await heir.claim()
        await heir.copy_all()
        heir.report()


def test_a_batch_behind_a_refused_one_is_refused_too(bench: Bench) -> None:
    errors = asyncio.run(_a_refused_batch_with_another_one_behind_it(bench))
    asyncio.run(_an_heir_copies_the_rest(bench))

    assert errors == [10, 45], "MESSAGE_TOO_LARGE, OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert bench.damage() == []


def test_without_sequence_numbers_a_batch_overtakes_the_one_before_it(
    bench: Bench, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(partition, "next_sequence", lambda sequence, count: sequence)

    errors = asyncio.run(_a_refused_batch_with_another_one_behind_it(bench))

    assert errors == [10, 0]
    with pytest.raises(IntegrityError, match="does not follow on the source from offset 0"):
        asyncio.run(_an_heir_copies_the_rest(bench))
    assert bench.damage()


# ----- the map is acknowledged before the position


class _CrashError(Exception):
    pass


async def _a_crash_in_the_middle_of_a_report(bench: Bench, monkeypatch: Patch) -> None:
    async with bench.connected():
        bench.write(10)
        former = bench.owner()
        await former.claim()
        await former.copy_all()
        former.report()
        bench.write(10, 10)
        crashed = bench.owner()
        await crashed.claim()  # its marker begins another run, which is in the block to come
        await crashed.copy_all()
        settle = KafkaStateLog.settle

        def crash(self: KafkaStateLog, places: Collection[Place], timeout_s: float) -> None:
            settle(self, places, timeout_s)
            raise _CrashError

        with monkeypatch.context() as during:
            during.setattr(KafkaStateLog, "settle", crash)
            with pytest.raises(_CrashError):
                crashed.report()
        bench.write(10)
        heir = bench.owner()
        await heir.claim()
        await heir.copy_all()
        heir.report()


def test_a_crash_in_the_middle_of_a_report_leaves_a_complete_map(
    bench: Bench, monkeypatch: Patch
) -> None:
    asyncio.run(_a_crash_in_the_middle_of_a_report(bench, monkeypatch))

    assert bench.damage() == []


def test_a_position_written_before_its_blocks_leaves_a_hole_in_the_map(
    bench: Bench, monkeypatch: Patch
) -> None:
    blocks, rest = MapLog.write, report.Reporter._write
    monkeypatch.setattr(MapLog, "write", lambda _self, _send: set())

    def position_first(self: report.Reporter, *what: Any) -> None:
        rest(self, *what)
        blocks(self._map, self._send_map)

    monkeypatch.setattr(report.Reporter, "_write", position_first)

    asyncio.run(_a_crash_in_the_middle_of_a_report(bench, monkeypatch))

    assert bench.damage()


# ----- topic ids tell a topic from its successor of the same name


async def _a_topic_created_anew_under_its_owner(bench: Bench, *, by_name: bool = False) -> int:
    """Its owner goes on with what it has; another one begins with the new topic."""
    former = bench.assigned
    async with bench.connected():
        bench.write(10, 10)
        owner = bench.owner()
        await owner.claim()
        await owner.copy_all()
        owner.report()
        delete_topics(bench.lab.source_props["bootstrap.servers"], [former.topic])
        bench.lab.source.create_topics([TopicSpec(former.topic, 1, 1, {})])
        [bench.assigned] = bench.lab.assignable(former.topic)
        assert bench.assigned.topic_id != former.topic_id
        bench.write(10, 10, 10)
        if by_name:
            owner.copy.source_id = topic_id_bytes(bench.assigned.topic_id)
        error = await owner.fetch()
        await owner.send()
        heir = bench.owner()
        await heir.claim()
        await heir.copy_all()
        heir.report()
        return error


def test_an_owner_reads_nothing_from_a_topic_created_anew(bench: Bench) -> None:
    error = asyncio.run(_a_topic_created_anew_under_its_owner(bench))

    assert error in codes.TOPIC_GONE
    assert bench.damage(former_records=2) == []


def test_a_fetch_by_name_goes_on_in_the_middle_of_the_new_topic(bench: Bench) -> None:
    error = asyncio.run(_a_topic_created_anew_under_its_owner(bench, by_name=True))

    assert error == 0
    assert bench.damage(former_records=2)


def test_a_map_by_name_takes_the_former_topic_for_the_new_one(
    bench: Bench, monkeypatch: Patch
) -> None:
    """The new owner begins behind records that were never copied."""
    former, load = bench.assigned, MapStarts.load

    def by_name(
        self: MapStarts, partitions: Sequence[AssignedPartition]
    ) -> dict[AssignedPartition, Start]:
        [wanted] = partitions
        found = load(self, [former])
        return {wanted: found[former]} if former in found else {}

    monkeypatch.setattr(MapStarts, "load", by_name)

    asyncio.run(_a_topic_created_anew_under_its_owner(bench))

    assert bench.damage(former_records=2)


# ----- claims lapse before the broker forgets them


async def _an_owner_that_sleeps_until_the_broker_has_forgotten_it(bench: Bench) -> list[int]:
    target = bench.lab.target
    async with bench.connected():
        older = bench.owner()
        lifetime_s = claims.claim_lifetime_s(bench.lab.target.broker_configs())
        await older.claim(lifetime_s)
        bench.write(10, 10)
        await older.fetch()
        newer = bench.owner()
        await newer.claim()
        await newer.copy_all()
        newer.report()
        await until(lambda: not target.active_producers([older.copy.target]))
        return [p.error for p in await older.send()] if not older.copy.needs_claim else []


@pytest.fixture(scope="module")
def forgetful_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    broker = KafkaBroker(
        tmp_path_factory.mktemp("forgetful"),
        "B",
        server_props={
            "producer.id.expiration.ms": "1000",
            "producer.id.expiration.check.interval.ms": "100",
        },
        environ=owner(),
    )
    broker.start()
    try:
        broker.wait_ready()
        yield broker
    finally:
        broker.kill()


@pytest.fixture
def forgetful(clusters: Mapping[str, KafkaBroker], forgetful_broker: KafkaBroker) -> Bench:
    return Bench(CopyLab(clusters["P"].bootstrap, forgetful_broker.bootstrap))


def test_a_claim_has_lapsed_when_the_broker_forgets_it(forgetful: Bench) -> None:
    sent = asyncio.run(_an_owner_that_sleeps_until_the_broker_has_forgotten_it(forgetful))

    assert sent == [], "the claim is taken anew first"
    assert forgetful.damage() == []


def test_a_claim_used_for_ever_lets_a_forgotten_owner_in_again(
    forgetful: Bench, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(Claim, "holds", lambda self: True)

    sent = asyncio.run(_an_owner_that_sleeps_until_the_broker_has_forgotten_it(forgetful))

    assert sent == [0]
    assert forgetful.damage()
