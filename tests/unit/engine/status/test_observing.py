"""One look at a flow says where partitions and groups stand, without a request for each group."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.engine.copying_records import CopiedTopic
from tests.unit.engine.status.test_loss_forecast import running

from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.offset_map import OffsetMap, Position, Run
from srm.engine.groups.checkpoints import emit
from srm.engine.moves.facts import MoveFacts
from srm.engine.ports import FlowContext
from srm.engine.status import observing
from srm.engine.status.observing import flow_status, observe, read_forecast
from srm.engine.status.status import FlowStatus, flow_health
from srm.errors import AuthorizationError, SrmError, UnavailableError


@pytest.fixture
def world() -> CopiedTopic:
    """Ten copied records, three that are not; audit has two to read of what is copied."""
    made = CopiedTopic.in_part()
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

    assert (partition.state, partition.reason) == ("waiting", "no replicator copies it now")
    assert partition.since_ms == 0, "the time of the last heartbeat"


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
    assert view.status.heard_ms == world.clock()


def test_a_source_that_does_not_answer_leaves_what_the_target_knows(world: CopiedTopic) -> None:
    world.p.fail(UnavailableError("no broker answers", "start its brokers"))

    view = observe(world.forward)

    [topic] = view.status.topics
    assert (topic.topic, topic.remaining, topic.state) == ("Topic", 3, "waiting")
    assert [group.group for group in view.groups] == ["audit"]
    [line] = [one.line for one in view.health.reasons if "P does not answer" in one.text]
    assert "no broker answers: srm failover plan --mode unplanned" in line, "one action"


@pytest.mark.parametrize(
    ("source_fails", "said"),
    [(False, "no broker of B, P answers"), (True, "no broker of B, P does not answer, either")],
)
def test_a_status_without_the_target_says_whether_the_source_answers(
    world: CopiedTopic, source_fails: bool, said: str
) -> None:
    world.b.fail(UnavailableError("no broker of B", "start its brokers"))
    if source_fails:
        world.p.fail(UnavailableError("no broker of P"))

    with pytest.raises(UnavailableError) as raised:
        flow_status(world.forward)
    assert raised.value.what.endswith(said)
    assert raised.value.action == "start its brokers"


def test_of_a_partition_that_nobody_has_reported_all_is_to_be_copied(world: CopiedTopic) -> None:
    world.maps.maps.clear()

    view = observe(world.forward)

    [partition] = view.partitions["Topic"]
    assert (partition.source_next, partition.lag, partition.state) == (None, 13, "unknown")
    assert view.status.topics[0].remaining == 13


@pytest.fixture
def with_heartbeats(world: CopiedTopic) -> CopiedTopic:
    """The same with heartbeats, which are copied and do not move."""
    world.settings = {"topics": ("T.*", "heartbeats")}
    world.p.add_topic("heartbeats")
    world.b.add_topic("P.heartbeats")
    world.p.produce("heartbeats", 0, 4)
    world.b.produce("P.heartbeats", 0, 4)
    place = TopicPartition("heartbeats", 0)
    world.maps.maps[place] = OffsetMap.of([Run(0, 0, 4)], Position(4, 4, 4), open_end=False)
    return world


def test_heartbeats_stand_where_they_are_copied_to_though_they_do_not_move(
    with_heartbeats: CopiedTopic,
) -> None:
    view = observe(with_heartbeats.forward)

    topics = {topic.topic: topic for topic in view.status.topics}
    assert (topics["heartbeats"].remaining, topics["heartbeats"].state) == (0, "caught-up")
    assert topics["heartbeats"].copied == 4


def test_a_forecast_that_is_refused_leaves_the_rest_of_the_look(
    world: CopiedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_named: object) -> MoveFacts:
        raise AuthorizationError("reading the ledger", "grant Read")

    monkeypatch.setattr(observing, "read_known", refuse)

    for status in (observe(world.forward).status, flow_status(world.forward)):
        assert (status.standing, status.topics[0].remaining) == (None, 3)
        assert flow_health(status).state == "DEGRADED"
        assert status.errors["forecast"].startswith("reading the ledger")
    with pytest.raises(SrmError, match="reading the ledger"):
        read_forecast(world.forward)


LOOKS = pytest.mark.parametrize(
    "look", [flow_status, lambda context: observe(context).status], ids=["status", "observe"]
)


@LOOKS
def test_no_topic_leaves_the_list_because_the_source_is_away(
    with_heartbeats: CopiedTopic, look: Callable[[FlowContext], FlowStatus]
) -> None:
    before = look(with_heartbeats.forward)
    with_heartbeats.p.fail()

    after = look(with_heartbeats.forward)

    assert [(topic.topic, topic.reported) for topic in before.topics] == [
        ("Topic", 1),
        ("heartbeats", 1),
    ]
    assert [(topic.topic, topic.reported) for topic in after.topics] == [
        ("Topic", 1),
        ("heartbeats", 1),
    ]


@LOOKS
def test_a_flow_that_copies_heartbeats_alone_is_not_idle_because_its_source_is_away(
    with_heartbeats: CopiedTopic, look: Callable[[FlowContext], FlowStatus]
) -> None:
    with_heartbeats.settings = {"topics": ("heartbeats",)}
    with_heartbeats.p.fail()

    status = look(with_heartbeats.forward)

    assert [topic.topic for topic in status.topics] == ["heartbeats"], "what is selected"
    health = flow_health(status)
    assert health.state == "DEGRADED"
    assert health.reasons[0].text.startswith("P does not answer")
    assert health.reasons[0].action == "srm failover plan --mode unplanned --source P --target B"


@LOOKS
def test_no_copy_is_said_to_have_caught_up_with_a_source_that_is_silent(
    world: CopiedTopic, look: Callable[[FlowContext], FlowStatus]
) -> None:
    """Producers may go on at a source that the network has cut off."""
    world.copy()
    running(world)
    heard_ms = world.clock()
    world.clock.advance(1_000)
    before = look(world.forward)
    world.p.fail()

    after = look(world.forward)

    assert (before.topics[0].state, before.heard_ms) == ("caught-up", heard_ms)
    assert (after.topics[0].state, after.remaining, after.heard_ms) == ("waiting", 0, heard_ms)
