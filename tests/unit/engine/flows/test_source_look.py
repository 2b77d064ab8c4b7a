"""How old is what is not copied: as the source says, else as the copy does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.engine.copying_records import ORIGINAL, CopiedTopic

from srm.domain.flow_state.replication_records import PartitionPosition, PartitionStatus, SlotReport
from srm.domain.offset_map.offset_map import OffsetMap, Position, Run
from srm.domain.verification.compared_record import ComparedRecord
from srm.engine.status.observing import observe, read_forecast
from srm.engine.status.status import FlowForecast
from srm.errors import AuthorizationError


@pytest.fixture
def world() -> CopiedTopic:
    """A topic that was idle for 20 minutes got 100 records 100 s ago, of which 10 are copied."""
    made = CopiedTopic()
    for cluster, topic in ((made.p, "Topic"), (made.b, "P.Topic")):
        cluster.produce(topic, 0, 1, timestamp_ms=made.clock())
    made.clock.advance(1_200_000)
    late = [ComparedRecord(at, b"k", b"v", (), made.clock()) for at in range(1, 101)]
    made.p.produce_records("Topic", 0, late)
    made.b.produce("P.Topic", 0, 10, timestamp_ms=made.clock())
    made.clock.advance(100_000)
    stands_at(made, Position(11, 11, 101))
    return made


def stands_at(world: CopiedTopic, position: Position) -> None:
    ids = world.p.topics()["Topic"].topic_id, world.b.topics()["P.Topic"].topic_id
    entry = PartitionPosition(ids[0], 0, ids[1], position, 1, 0)
    now_ms = world.clock()
    world.maps.reports = (SlotReport("0", 1, now_ms, (entry,), source_heard_ms=now_ms),)
    runs = [Run(0, 0, position.source_next)]
    world.maps.maps[ORIGINAL] = OffsetMap.of(runs, position, open_end=False)


def standing(world: CopiedTopic) -> FlowForecast:
    return read_forecast(world.forward)


def test_it_is_the_age_of_the_first_record_that_is_not_copied_whatever_the_rate(
    world: CopiedTopic,
) -> None:
    found = standing(world)

    assert found.forecast.seconds == 100
    assert "90 records (1 min 40 s) lost" in found.line
    assert observe(world.forward).status.standing == found


def test_where_the_source_may_not_be_read_it_is_as_old_as_the_end_of_the_copy(
    world: CopiedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_what: object, **_how: object) -> None:
        raise AuthorizationError("no right to read")

    monkeypatch.setattr(world.p, "first_records", refuse)

    assert standing(world).forecast.seconds == 100


def test_of_a_source_that_is_dead_it_is_as_old_as_that_was_when_it_last_answered(
    world: CopiedTopic,
) -> None:
    world.p.fail()
    world.clock.advance(300_000)

    assert standing(world).forecast.seconds == 100


def test_what_an_open_transaction_holds_back_is_older_than_the_last_answer(
    world: CopiedTopic,
) -> None:
    """The log seems to end where the transaction begins: not all had been copied then."""
    stands_at(world, Position(101, 11, 101))
    held = ((world.b.topics()["P.Topic"].topic_id, 0, 106),)
    world.maps.reports = tuple(replace(one, held_back=held) for one in world.maps.reports)
    world.clock.advance(7_000)

    found = standing(world)

    assert "5 records (1 min 47 s) lost" in found.line


def test_it_is_never_longer_ago_than_it_was_all_copied(world: CopiedTopic) -> None:
    """Producers may give records any time, that of events of last year, say."""
    stands_at(world, Position(101, 11, 101))
    world.clock.advance(7_000)
    world.p.produce_records("Topic", 0, [ComparedRecord(101, b"k", b"v", (), 1_000)])

    assert standing(world).forecast.seconds == 7


def test_a_partition_that_is_stopped_is_not_all_copied_though_it_told_of_no_more(
    world: CopiedTopic,
) -> None:
    stands_at(world, Position(11, 11, 11))
    world.clock.advance(7_000)
    stopped = PartitionStatus("Topic", 0, "stopped", "full", time_ms=world.clock() - 50_000)
    world.maps.statuses = {ORIGINAL: stopped}

    assert standing(world).forecast.seconds == 107


def test_a_copy_with_more_partitions_than_its_original_keeps_the_upper_bound(
    world: CopiedTopic,
) -> None:
    """The original was created again with fewer: in the others nothing can be lost."""
    world.b.delete_topic("P.Topic")
    world.b.add_topic("P.Topic", 2)
    world.b.produce("P.Topic", 0, 11, timestamp_ms=world.clock())
    stands_at(world, Position(11, 11, 101))

    found = standing(world).forecast

    assert (found.not_copied, found.at_most, found.age_ms) == (90, 90, 0)
    assert [topic.unknown for topic in found.topics] == [()]


def test_where_all_is_copied_it_is_nothing(world: CopiedTopic) -> None:
    stands_at(world, Position(101, 11, 101))

    assert standing(world).forecast.seconds == 0


def test_the_marker_of_a_claim_is_no_record_that_was_copied(world: CopiedTopic) -> None:
    """It is the newest in the copy, and of when the replicator was started again."""
    world.b.produce_records(
        "P.Topic", 0, [ComparedRecord(11, b"k", b"v", (), world.clock() - 95_000)]
    )
    stands_at(world, Position(12, 12, 101))
    world.b.produce("P.Topic", 0, 1, timestamp_ms=world.clock())
    world.p.fail()

    assert standing(world).forecast.seconds == 95
