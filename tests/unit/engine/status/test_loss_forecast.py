"""What it would cost if the source died now, at any moment and also when it has."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.engine.copying_records import COPY, ORIGINAL, CopiedTopic

from srm.domain.flow_state.replication_records import (
    PAUSE_KEY,
    Decision,
    PartitionPosition,
    Pause,
    SlotReport,
)
from srm.domain.moves.routing import Route, group_subject
from srm.domain.names import internal_topics
from srm.domain.offset_map.offset_map import Position
from srm.engine.flows.supervision import state_topic
from srm.engine.groups.checkpoints import emit
from srm.engine.ports import FlowContext
from srm.engine.status.observing import flow_status, observe, read_forecast
from srm.engine.status.status import FlowStatus
from srm.errors import UnavailableError


def running(world: CopiedTopic, heard_ms: int | None = None) -> None:
    """Report what is copied, as a slot does."""
    heard = world.clock() if heard_ms is None else heard_ms
    done = world.waiting[0].offset if world.waiting else world.source_end
    entry = PartitionPosition(
        world.p.topics()["Topic"].topic_id,
        0,
        world.b.topics()["P.Topic"].topic_id,
        Position(done, world.target_end, world.source_end),
        1,
        0,
    )
    world.maps.reports = (SlotReport("0", 1, heard, (entry,), source_heard_ms=heard),)
    world.put()


@pytest.fixture
def world() -> CopiedTopic:
    """Ten copied records, three that are not; audit has two to read of what is copied."""
    made = CopiedTopic.in_part()
    made.commit("audit", 8)
    running(made)
    return made


def test_the_line_says_what_is_lost_read_again_and_proven(world: CopiedTopic) -> None:
    world.p.join("audit")
    emit(world.forward)
    world.clock.advance(3_000)
    running(world)

    status = flow_status(world.forward)

    assert status.standing is not None
    assert status.standing.line.startswith("if P died now: 3 records")
    again = "lost, 0 read again by 1 group, 1 of 1 groups proven 3 s ago"
    assert status.standing.line.endswith(again)


def test_a_group_that_works_on_the_target_reads_nothing_again(world: CopiedTopic) -> None:
    """The loss of B was said to cost groups that a failback had taken back to P."""
    emit(world.forward)
    before = flow_status(world.forward).standing
    world.b.add_topic(internal_topics.ROUTING)
    went = Route(1, "B", "go", "m1", world.clock())
    subject = group_subject("audit").encode()
    world.b.compacted_topic(internal_topics.ROUTING).write({subject: went.value()})

    after = flow_status(world.forward)

    assert before is not None
    assert after.standing is not None
    assert ([one.group for one in before.forecast.groups], before.there) == (["audit"], ())
    assert (after.standing.forecast.groups, after.standing.there) == ((), ("audit",))
    assert not [hint for hint in after.hints if "no checkpoint" in hint]


def test_what_a_group_has_still_to_read_after_its_move_is_not_read_again(
    world: CopiedTopic,
) -> None:
    """The figure grew with each record that producers wrote on the target."""

    def backlog() -> int:
        outlook = observe(world.forward).outlook
        assert outlook is not None
        [plan] = outlook.plans
        return outlook.read_again(plan)

    emit(world.forward)
    world.p.fail()
    before = backlog()
    world.b.add_topic(internal_topics.ROUTING)
    went = Route(1, "B", "go", "m1", world.clock())
    subject = group_subject("audit").encode()
    world.b.compacted_topic(internal_topics.ROUTING).write({subject: went.value()})

    assert (before, backlog()) == (2, 0)


def test_nothing_lost_has_no_age(world: CopiedTopic) -> None:
    """It was "0 records (0.0 s) lost"."""
    world.copy()
    running(world)

    standing = flow_status(world.forward).standing

    assert standing is not None
    assert standing.line.startswith("if P died now: 0 records lost, ")


def test_a_source_that_nobody_has_heard_of_for_long_has_gone_on_and_the_line_says_so(
    world: CopiedTopic,
) -> None:
    world.clock.advance(200_000)
    world.p.fail()

    standing = flow_status(world.forward).standing

    assert standing is not None
    assert standing.forecast.at_most is not None
    assert standing.line.startswith(
        f"without P: up to {standing.forecast.at_most:,} records lost "
        "(3 when P last answered, 3 min 20 s ago, then its last rate), 0 read again"
    )


@pytest.mark.parametrize("look", [flow_status, lambda context: observe(context).status])
def test_while_the_source_answers_all_that_it_has_and_the_copy_has_not_is_lost(
    world: CopiedTopic, look: Callable[[FlowContext], FlowStatus]
) -> None:
    """The replicator has stopped; what it told last is of when it was all copied."""
    world.copy()
    running(world)
    world.clock.advance(20_000)
    world.write(*(b"%d" % number for number in range(500)))

    status = look(world.forward)

    assert status.standing is not None
    forecast = status.standing.forecast
    assert (forecast.not_copied, forecast.at_most) == (status.remaining, 500)
    assert "500 records (20 s) lost, 0 read again" in status.standing.line


@pytest.mark.parametrize("look", [flow_status, lambda context: observe(context).status])
@pytest.mark.parametrize("decision", ["keep", "discard"])
def test_what_a_settlement_leaves_on_the_source_is_not_to_copy_before_the_replicator_resumes(
    world: CopiedTopic, look: Callable[[FlowContext], FlowStatus], decision: Decision
) -> None:
    before = world.maps.maps[ORIGINAL]
    world.leave(decision)
    world.maps.maps[ORIGINAL] = before

    status = look(world.forward)

    assert status.standing is not None
    assert (status.remaining, status.standing.forecast.not_copied) == (0, 0)


@pytest.mark.parametrize("look", [flow_status, lambda context: observe(context).status])
def test_a_topic_without_a_copy_is_lost_as_a_whole_and_heartbeats_are_no_loss(
    world: CopiedTopic, look: Callable[[FlowContext], FlowStatus]
) -> None:
    world.settings = {"topics": ("T.*", "heartbeats")}
    for topic in ("Tax", "heartbeats"):
        world.p.add_topic(topic)
        world.p.produce(topic, 0, 4)

    status = look(world.forward)

    assert status.standing is not None
    forecast = status.standing.forecast
    assert status.remaining == 3 + 4 + 4
    assert {topic.topic: topic.not_copied for topic in forecast.topics} == {"Topic": 3, "Tax": 4}
    assert forecast.topics[0].unknown == ("Tax-0 is not copied: its copy has not begun",)


def test_groups_without_a_checkpoint_are_named_with_the_command(world: CopiedTopic) -> None:
    before = flow_status(world.forward)
    emit(world.forward)

    [hint] = [line for line in before.hints if "no checkpoint yet of audit" in line]
    assert "srm checkpoints emit --flow 'P->B'" in hint
    assert not [line for line in flow_status(world.forward).hints if "no checkpoint" in line]


def test_what_was_found_wrong_is_in_the_line(world: CopiedTopic) -> None:
    world.b.mark("P.Topic")
    world.write(b"13")
    world.copy()
    world.put(shift=1)
    emit(world.forward)

    status = flow_status(world.forward)

    assert status.standing is not None
    assert "0 of 1 groups proven" in status.standing.line
    assert "WRONG in 1 partition" in status.standing.line


def test_a_checkpoint_that_did_not_change_is_as_fresh_as_the_last_emission(world) -> None:
    emit(world.forward)
    world.clock.advance(60_000)
    emit(world.forward)
    world.clock.advance(2_000)

    standing = flow_status(world.forward).standing

    assert standing is not None
    [group] = standing.forecast.groups
    assert (group.group, group.age_ms) == ("audit", 2_000)


def test_a_checkpoint_that_could_not_be_computed_again_is_as_old_as_its_record(world) -> None:
    emit(world.forward)
    world.clock.advance(60_000)
    world.p.hide_group("audit")
    world.forward.source.commit("other", {ORIGINAL: 1})
    emit(world.forward, None)

    standing = flow_status(world.forward).standing

    assert standing is not None
    ages = {group.group: group.age_ms for group in standing.forecast.groups}
    assert ages["other"] == 0
    assert ages["audit"] == 60_000


@pytest.mark.parametrize("is_dead", [True, False])
def test_once_it_is_given_up_the_way_back_is_said_and_not_to_give_it_up(
    world: CopiedTopic, is_dead: bool
) -> None:
    why = Pause("r1", "ann", "unplanned failover m1: P is given up", 1)
    world.b.add_topic(internal_topics.replication("P"), 2)
    state_topic(world.forward).write({PAUSE_KEY: why.value()})
    if is_dead:
        world.p.fail()

    status = flow_status(world.forward)

    assert status.pause == why
    assert status.standing is None
    assert "srm return status --flow 'P->B'" in status.hints[0]
    assert "srm restore --from B --to P" in status.hints[0]
    assert not any("--mode unplanned" in hint or "no checkpoint" in hint for hint in status.hints)


def test_when_the_source_is_dead_the_target_answers_and_says_so(world: CopiedTopic) -> None:
    emit(world.forward)
    world.p.fail()
    world.clock.advance(5_000)

    status = flow_status(world.forward)

    assert "does not answer" in status.source_error
    assert "--mode unplanned --source P --target B" in status.hints[0]
    assert status.standing is not None
    assert "3 records" in status.standing.line
    [topic] = status.topics
    assert (topic.topic, topic.remote_topic, topic.copied, topic.remaining) == (
        *("Topic", "P.Topic"),
        *(10, 3),
    )
    [group] = status.groups
    assert (group.group, group.source_state, group.partitions) == (
        *("audit", "unknown"),
        {"checkpoint": 1},
    )


def test_when_the_target_is_dead_it_says_so_as_ever(world: CopiedTopic) -> None:
    world.b.fail()

    with pytest.raises(UnavailableError, match="cluster B"):
        flow_status(world.forward)


@pytest.mark.parametrize("look", [flow_status, lambda context: observe(context).status])
def test_what_a_group_that_nobody_runs_has_never_read_it_does_not_read_again(
    world: CopiedTopic, look: Callable[[FlowContext], FlowStatus]
) -> None:
    """B holds ten records and audit has read eight: it finds two there, both of them new to it."""
    emit(world.forward)

    standing = look(world.forward).standing

    assert standing is not None
    assert standing.forecast.re_read == 0


def test_a_status_counts_nothing_for_idle_groups_however_many_there_are(
    world: CopiedTopic,
) -> None:
    for number in range(60):
        world.commit(f"idle-{number}", 8)
    emit(world.forward)

    assert read_forecast(world.forward).forecast.re_read == 0


def test_what_it_has_committed_since_its_checkpoint_it_reads_again(world: CopiedTopic) -> None:
    emit(world.forward)
    world.commit("audit", 9)

    standing = flow_status(world.forward).standing

    assert standing is not None
    assert standing.forecast.re_read == 1


def test_its_commits_count_while_the_source_answers_else_it_is_an_unread_backlog(
    world: CopiedTopic,
) -> None:
    emit(world.forward)
    world.p.join("audit")
    running_group = read_forecast(world.forward)
    world.p.leave("audit")
    world.p.fail()

    without_source = read_forecast(world.forward)

    assert "0 read again by 1 group, " in running_group.line
    assert "without P: " in without_source.line
    assert "unread backlog 2 of 1 group, " in without_source.line
    assert without_source.forecast.numbers()["unread_backlog"] == 2


def test_what_groups_would_read_again_that_stood_still_is_told_apart(world: CopiedTopic) -> None:
    """A backlog that nobody reads counts once the source cannot say that nobody has read it."""
    world.commit("reader", 3)
    emit(world.forward)
    world.clock.advance(60_000)
    world.commit("reader", 9)
    emit(world.forward)
    world.p.fail()

    standing = read_forecast(world.forward)

    still = {group.group: group.stood_still for group in standing.forecast.groups}
    assert still == {"audit": True, "reader": False}
    assert standing.forecast.re_read == 2 + 1
    told = "unread backlog 3 of 2 groups, 2 of it without progress at the last check, 2 of 2"
    assert told in standing.line
    assert "2 of it without progress" in standing.forecast.line("P")


def test_nothing_is_counted_where_only_the_commits_on_the_target_would_tell(
    world: CopiedTopic,
) -> None:
    """After a failback groups have commits of their own there, which a look does not read."""
    emit(world.forward)
    before = read_forecast(world.forward).forecast.re_read
    world.b.add_topic("Topic")
    world.b.produce("Topic", records=50)

    assert read_forecast(world.forward).forecast.re_read == before


def test_no_group_is_asked_for_on_the_target(world: CopiedTopic, monkeypatch) -> None:
    emit(world.forward)
    asked = []
    committed = world.b.committed_offsets
    monkeypatch.setattr(
        world.b, "committed_offsets", lambda group: asked.append(group) or committed(group)
    )

    flow_status(world.forward)

    assert asked == []
    assert COPY not in world.b.committed_offsets("audit")
