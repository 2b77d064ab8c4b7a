"""Dangers around a move that its plan names, each with its remedy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.engine.moves.control.moving import REQUEST, World

from srm.config.model import Config
from srm.domain.moves.routing import Ack
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine import moves
from srm.engine.moves import MoveContext
from srm.engine.moves.records import ensure_topics


@pytest.fixture
def world(config: Config) -> World:
    world = World(config)
    world.p.produce("Payments", records=10)
    world.copy("P", "B")
    world.copy("B", "P")
    for group in ("near", "far"):
        world.p.commit(group, {TopicPartition("Payments", 0): 5})
    return world


def warned(world: World, context: MoveContext | None = None) -> list[str]:
    """Return what a plan warns of, but for the replicator, which never runs here."""
    warnings = moves.plan(context or world.context(), REQUEST, dry_run=True).warnings
    return [each for each in warnings if "no replicator has ever run" not in each]


def follows(world: World, subject: str, ahead_ms: int = 0) -> None:
    ack = Ack(subject, "c", 0, "resumed", "P", world.clock() - ahead_ms, host="h", kind="consumer")
    world.p.compacted_topic(internal_topics.ROUTING).write({ack.key(): ack.value()})


def keeps(world: World, here: str | None, there: str | None) -> None:
    for cluster, topic, ms in ((world.p, "Payments", here), (world.b, "P.Payments", there)):
        cluster.alter_topic_configs({topic: {"retention.ms": ms}})


def write_with_ids(world: World) -> None:
    for cluster in (world.p, world.b):
        for producer_id in (7, 9):
            cluster.produce("Payments", producer_id=producer_id, timestamp_ms=world.clock())
    world.copy("P", "B")


def test_a_move_in_good_surroundings_has_no_warning(world: World) -> None:
    assert warned(world) == []


def test_a_topic_that_the_opposite_flow_does_not_copy_does_not_return(world: World) -> None:
    context = world.context()
    config = replace(context.reverse.config, topics=("Refunds",))
    reverse = replace(context.reverse, config=config)

    [warning] = warned(world, replace(context, reverse=reverse))

    assert "srm-control topics --source B --target P --add Payments" in warning


def test_a_topic_that_the_target_has_only_as_a_copy_has_to_be_created(world: World) -> None:
    world.b.delete_topic("Payments")

    [warning, *_] = warned(world)

    assert "Payments does not exist on B, producers sent there fail" in warning
    assert "--create --topic Payments --partitions 1" in warning


def test_members_that_follow_no_route_are_named(world: World) -> None:
    world.p.join("near")
    [member] = world.p.groups(["near"])["near"].members

    [warning] = warned(world)

    assert warning.startswith(f"group near: {member} does not follow routes")
    assert "until it rejoins it reads at P's offsets" in warning


def test_writers_that_follow_no_route_are_counted_and_their_shared_ids_named(world: World) -> None:
    write_with_ids(world)

    writers, ids = warned(world)

    assert "topic Payments: 2 of the producers that wrote" in writers
    assert "its batches can be acknowledged and never written" in writers
    assert "Payments-0: producer ids 7, 9 of P are used by another" in ids


@pytest.mark.parametrize(
    ("here", "there", "words"),
    [
        ("-1", "1000", "keeps records 1000 ms on B but without limit on P"),
        ("2000", "1000", "keeps records 1000 ms on B but 2000 ms on P"),
        ("2000", "1000", "raise retention.ms there"),
    ],
)
def test_shorter_retention_on_the_target_is_a_danger(
    world: World, here: str, there: str, words: str
) -> None:
    keeps(world, here, there)

    [warning] = warned(world)

    assert words in warning


@pytest.mark.parametrize(
    ("here", "there"), [("1000", "-1"), ("5", "6"), ("-1", "-1"), (None, "5"), ("5", None)]
)
def test_longer_or_unset_retention_on_the_target_is_no_danger(
    world: World, here: str | None, there: str | None
) -> None:
    keeps(world, here, there)

    assert warned(world) == []


@pytest.mark.parametrize(
    ("ahead_ms", "words"), [(500, ""), (-8_000, "clock of cluster P, seen from h, is 8.0 s behind")]
)
def test_a_skew_of_clocks_is_a_danger_from_two_seconds_on(
    world: World, ahead_ms: int, words: str
) -> None:
    ensure_topics(world.context())
    follows(world, "topic:Payments", ahead_ms)

    found = warned(world)

    assert [words in each for each in found] == ([True] if words else [])


def test_groups_that_stay_are_one_warning_for_the_topics_they_read_however_many_they_are(
    world: World,
) -> None:
    for number in range(20):
        world.p.commit(f"g{number}", {TopicPartition("Payments", 0): 1})
    both = {TopicPartition("Payments", 0): 1, TopicPartition("B.Payments", 0): 0}
    world.p.commit("other", both)

    one, many = warned(world)

    assert one.startswith("group other reads B.Payments, Payments on P and does not move")
    assert many.startswith(
        "20 groups: g0, g1, g10, g11, g12, g13, g14, g15 and 12 more read Payments on"
    )
