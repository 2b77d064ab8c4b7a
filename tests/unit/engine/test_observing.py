"""One look at a flow says where partitions and groups stand, without a request for each group."""

from __future__ import annotations

import pytest
from tests.unit.engine.copying_records import CopiedTopic
from tests.unit.engine.test_standing import running

from srm.domain.offset_map import OffsetMap, Position, Run
from srm.domain.topics import TopicPartition
from srm.engine.checkpoints import emit
from srm.engine.observing import observe


@pytest.fixture
def world() -> CopiedTopic:
    """Ten copied records, three that are not; audit has two to read of what is copied."""
    made = CopiedTopic()
    made.write(*(b"%d" % number for number in range(10)))
    made.copy()
    made.write(b"10", b"11", b"12")
    made.commit("audit", 8)
    running(made)
    emit(made.forward)
    return made


def test_partitions_stand_where_their_slots_say_and_lag_behind_what_the_source_says(
    world: CopiedTopic,
) -> None:
    world.write(b"13")

    [partition] = observe(world.forward).partitions["Topic"]

    assert (partition.source_next, partition.source_end, partition.lag) == (10, 14, 4)


def test_of_partitions_that_nobody_copies_now_what_was_said_last_is_not_told(
    world: CopiedTopic,
) -> None:
    world.clock.advance(60_000)

    [partition] = observe(world.forward).partitions["Topic"]

    assert (partition.state, partition.reason) == ("waiting", "nobody copies it now")
    assert partition.since_ms == 0, "that is when the replicator was last heard of"


def test_a_partition_that_nobody_copies_waits_though_nothing_is_left_to_copy(
    world: CopiedTopic,
) -> None:
    world.copy()
    running(world)
    world.clock.advance(60_000)

    [partition] = observe(world.forward).partitions["Topic"]

    assert (partition.state, partition.lag) == ("waiting", 0)


def test_groups_stand_where_their_checkpoints_say(world: CopiedTopic) -> None:
    view = observe(world.forward)

    [group] = view.groups
    assert (group.group, group.lag) == ("audit", 2)
    assert view.heard_ms == world.clock()


def test_a_source_that_does_not_answer_leaves_what_the_target_knows(world: CopiedTopic) -> None:
    world.p.fail()

    view = observe(world.forward)

    [topic] = view.status.topics
    assert (topic.topic, topic.remaining, topic.state) == ("Topic", 3, "waiting")
    assert view.status.source_error
    assert [group.group for group in view.groups] == ["audit"]
    assert any("P does not answer" in reason.text for reason in view.health.reasons)


def test_of_a_partition_that_nobody_has_reported_all_is_to_be_copied(world: CopiedTopic) -> None:
    world.maps.maps.clear()

    view = observe(world.forward)

    [partition] = view.partitions["Topic"]
    assert (partition.source_next, partition.lag, partition.state) == (None, 13, "unknown")
    assert view.status.topics[0].remaining == 13


def test_heartbeats_stand_where_they_are_copied_to_though_they_do_not_move(
    world: CopiedTopic,
) -> None:
    world.settings = {"topics": ("T.*", "heartbeats")}
    world.p.add_topic("heartbeats")
    world.b.add_topic("P.heartbeats")
    world.p.produce("heartbeats", 0, 4)
    world.b.produce("P.heartbeats", 0, 4)
    place = TopicPartition("heartbeats", 0)
    world.maps.maps[place] = OffsetMap.of([Run(0, 0, 4)], Position(4, 4, 4), open_end=False)

    view = observe(world.forward)

    topics = {topic.topic: topic for topic in view.status.topics}
    assert (topics["heartbeats"].remaining, topics["heartbeats"].state) == (0, "caught-up")
