"""Which topics and groups move where groups are named or excluded, and what a plan says stays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import World, config_in
from tests.unit.engine.moves.giving_up import Disaster

from srm.config.model import Config
from srm.domain.moves.announcements import Ack
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.request import MoveRequest
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.groups.checkpoints import emit
from srm.engine.moves.context import ensure_topics
from srm.errors import UsageError

EVERYTHING = MoveRequest("failover", "P", "B")
AUDIT = replace(EVERYTHING, groups=("audit",))
EXCLUDED = replace(EVERYTHING, exclude_groups=("other",))
TOPICS = ("Payments", "PaymentsOther")


@pytest.fixture
def world(config: Config) -> World:
    """Group audit reads Payments, other PaymentsOther, and both reads both."""
    made = World(config, topics=TOPICS)
    for topic in TOPICS:
        made.p.produce(topic, records=10)
        made.copy("P", "B", topic=topic)
        made.copy("B", "P", topic=topic)
    made.start("audit", "P", {"Payments": 5})
    made.start("other", "P", {"PaymentsOther": 5})
    made.start("both", "P", {"Payments": 5, "PaymentsOther": 5})
    ensure_topics(made.context())
    return made


def planned(world: World, request: MoveRequest) -> MovePlan:
    return moves.plan(world.context(), request, "m1")


def left(plan: MovePlan) -> list[str]:
    return [one.text for one in plan.findings if one.id == "left-out"]


def announce(world: World, group: str, *topics: str) -> None:
    at = {f"{topic}-0": 0 for topic in topics}
    ack = Ack(f"group:{group}", "c1", 0, "resumed", "P", world.clock(), at)
    world.p.compacted_topic(internal_topics.CLIENTS).write({ack.key(): ack.value()})


def test_a_named_group_moves_the_topics_that_it_reads_and_the_rest_is_named(world: World) -> None:
    plan = planned(world, AUDIT)

    assert plan.topics == ("Payments",)
    assert plan.blocking == ()
    rest, readers = left(plan)
    assert "1 topic of P->B that the named groups do not read (PaymentsOther)" in rest
    assert "1 group with offsets of Payments on P will not move (both)" in readers
    moves.hold(world.context(), "m1")
    assert "topic:PaymentsOther" not in world.routes("P")


@pytest.mark.parametrize(
    ("groups", "topics"), [(("both",), TOPICS), (("audit", "other"), TOPICS), ((), TOPICS)]
)
def test_what_named_groups_read_moves_together(
    world: World, groups: tuple[str, ...], topics: tuple[str, ...]
) -> None:
    assert planned(world, replace(EVERYTHING, groups=groups)).topics == topics


def test_topics_that_are_named_move_whatever_a_group_reads(world: World) -> None:
    plan = planned(world, replace(AUDIT, topics=TOPICS))

    assert plan.topics == TOPICS
    assert not any("do not read" in line for line in left(plan))


def test_a_group_that_reads_the_copies_of_the_other_cluster_moves_their_originals(
    world: World,
) -> None:
    world.p.commit("audit", {TopicPartition("B.PaymentsOther", 0): 0})

    assert planned(world, AUDIT).topics == TOPICS


def test_what_a_client_announces_counts_before_its_first_commit(world: World) -> None:
    world.p.join("fresh")
    announce(world, "fresh", "PaymentsOther")

    assert planned(world, replace(EVERYTHING, groups=("fresh",))).topics == ("PaymentsOther",)


def test_a_group_of_which_no_topic_is_known_moves_none(world: World) -> None:
    world.p.join("fresh")

    plan = planned(world, replace(EVERYTHING, groups=("fresh",)))

    assert plan.topics == ()
    [reason] = plan.blocking
    assert "no commit or client of fresh names a topic of P->B: name the topics" in reason


def test_without_the_source_the_last_places_of_named_groups_choose_the_topics(
    world: World,
) -> None:
    disaster = Disaster(world)
    emit(world.context().forward)

    plan = disaster.planned(topics=(), groups=("audit",))

    assert plan.topics == ("Payments",)
    assert any("(PaymentsOther) will not move" in line for line in left(plan))


def test_an_excluded_group_stays_and_is_named_by_plan_and_report(world: World) -> None:
    context = world.context()

    plan = moves.plan(context, EXCLUDED, "m1")
    moves.hold(context, "m1")
    world.obey("audit", "both")
    world.passing()
    moves.wait_status(context, "m1")
    moves.apply(context, "m1")
    moves.go(context, "m1")
    report = moves.report(context, "m1")

    assert plan.group_names == ("audit", "both")
    assert plan.topics == TOPICS
    [line] = left(plan)
    assert line.startswith("1 group (other) excluded: not moved, clients remain on P")
    assert line in report.warnings
    assert not any("other" in problem for problem in report.problems)
    assert "group:other" not in world.routes("P") | world.routes("B")
    assert not world.offsets("B", "other")


def test_an_excluded_group_that_is_unknown_on_the_source_is_named(world: World) -> None:
    """With a wrong name the group that should stay moves, and nothing said so."""
    request = replace(EXCLUDED, exclude_groups=("other", "othr"))

    plan = moves.plan(world.context(), request, "m1")

    [line] = [one for one in left(plan) if "unknown on P" in one]
    assert line.startswith("1 excluded group (othr) unknown on P: check the names")
    assert not any("unknown" in one for one in left(moves.plan(world.context(), EXCLUDED, "m2")))


def test_without_the_source_an_excluded_group_stays_too_and_no_home_moves(world: World) -> None:
    """Clients without a route follow the home: that of the excluded group would move with it."""
    disaster = Disaster(world)
    emit(world.context().forward)
    unplanned = replace(EVERYTHING, mode="unplanned")
    whole = moves.plan(disaster.context, unplanned, dry_run=True)

    plan = disaster.planned(topics=(), groups=(), exclude_groups=("other",))

    assert "P" in whole.homes
    assert plan.homes == ()
    assert plan.group_names == ("audit", "both")
    assert any("(other) excluded" in line for line in left(plan))


def test_a_group_is_not_named_and_excluded() -> None:
    with pytest.raises(UsageError, match="groups audit of the move are named and excluded"):
        replace(AUDIT, exclude_groups=("audit", "other"))


def test_the_command_that_repeats_a_request_excludes_the_same_groups() -> None:
    assert EXCLUDED.options.endswith("--exclude-group other")


def test_a_plan_of_one_topic_and_group_elsewhere_is_as_before(tmp_path) -> None:
    world = World(config_in(tmp_path))
    world.p.produce("Payments", records=1)
    world.copy("P", "B")
    world.copy("B", "P")
    world.start("audit", "P", {"Payments": 1})

    assert left(planned(world, AUDIT)) == []
