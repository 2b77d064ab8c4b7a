"""Dangers around a move that its plan names, each with its remedy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import REQUEST, World, busy_world, config_in
from tests.unit.engine.moves.giving_up import Disaster

from srm.config.model import Config
from srm.domain.moves.announcements import Ack
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import Route
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.moves.context import MoveContext, ensure_topics
from srm.errors import ConflictError


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
    ack = Ack(subject, "c", 0, "resumed", "P", world.clock() - ahead_ms, host="h")
    world.p.compacted_topic(internal_topics.CLIENTS).write({ack.key(): ack.value()})


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


def test_what_the_target_does_not_admit_is_named(world: World) -> None:
    world.p.join("near", kind="consumer")
    world.b.kinds = frozenset({"classic"})
    world.b.broker_settings["group.max.session.timeout.ms"] = "10000"
    world.b.alter_topic_configs({"Payments": {"max.message.bytes": "1000"}})
    world.b.client_quotas[("user", "ada"),] = {"producer_byte_rate": 1.0}

    plan = moves.plan(world.context(), REQUEST, dry_run=True)

    protocol, session, size, quota = (
        one.line for one in plan.findings if one.id == "target-limits"
    )
    assert "1 group (near) with the consumer group protocol, which B does not admit" in protocol
    assert "--exclude-group" in protocol
    assert "group.max.session.timeout.ms is 10000 on B and 1800000 on P" in session
    assert "max.message.bytes of topic Payments is 1000 on B" in size
    assert "quota producer_byte_rate of user ada is 1 on B and none on P" in quota
    assert plan.blocking == ()


def test_without_the_source_the_defaults_of_clients_are_compared(config: Config) -> None:
    disaster = Disaster(busy_world(config))
    disaster.world.b.broker_settings["transaction.max.timeout.ms"] = "10000"

    plan = disaster.planned()

    [found] = [one.text for one in plan.findings if one.id == "target-limits"]
    assert found.startswith("transaction.max.timeout.ms is 10000 on B and 60000 by default in")


@pytest.mark.parametrize("side", ["p", "b"])
def test_limits_that_srm_may_not_see_are_one_note(world: World, side: str) -> None:
    getattr(world, side).broker_settings = {}

    [line] = warned(world)

    assert line.startswith(f"limits of {side.upper()} for clients are not compared: srm lacks")


def test_a_topic_that_the_opposite_flow_does_not_copy_does_not_return(world: World) -> None:
    context = world.context()
    config = replace(context.reverse.config, topics=("Refunds",))
    reverse = replace(context.reverse, config=config)

    [warning] = warned(world, replace(context, reverse=reverse))

    assert "srm-control topics --source B --target P --add Payments" in warning


def test_members_that_follow_no_route_are_named(world: World) -> None:
    world.p.join("near")
    [member] = world.p.groups(["near"])["near"].members

    [warning] = warned(world)

    assert warning.startswith(f"group near: {member} does not follow routes")
    assert "it reads at P's offsets until it rejoins" in warning


def test_writers_that_follow_no_route_are_counted_and_their_shared_ids_named(world: World) -> None:
    write_with_ids(world)

    writers, ids = warned(world)

    assert "topic Payments: 2 of the producers that wrote" in writers
    assert "batches can be acknowledged and never written" in writers
    assert "Payments-0: P and B gave producer id 7, 9 to different producers" in ids


@pytest.mark.parametrize(("here", "kept"), [(None, "604800000"), ("-1", "-1"), ("2000", "2000")])
def test_a_copy_that_keeps_less_than_its_source_is_a_danger_if_no_sync_changes_that(
    world: World, here: str | None, kept: str
) -> None:
    context = world.context()
    config = replace(context.forward.config, sync_topic_configs_enabled=False)
    keeps(world, here, "1000")

    [warning] = warned(world, replace(context, forward=replace(context.forward, config=config)))

    assert warning == (
        f"P.Payments: retention.ms is 1000, on Payments of P {kept}; "
        f"set retention.ms={kept} on P.Payments of B"
    )


@pytest.mark.parametrize(
    ("here", "there"), [("1000", "-1"), ("5", "6"), ("-1", "-1"), ("5", None), ("2000", "1000")]
)
def test_a_copy_that_keeps_as_much_or_will_by_the_next_sync_is_no_danger(
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

    assert one.startswith("1 group with offsets of B.Payments, Payments on P will not move (other)")
    assert many.startswith(
        "20 groups with offsets of Payments on P will not move (g0, g1, g10, g11, g12, g13, "
    )


FAN_IN = """
clusters = A, B, C
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
C.bootstrap.servers = c:9092
A->C.enabled = true
B->C.enabled = true
C->A.enabled = true
topics = Payments.*
groups = .*
"""
OF_A = MoveRequest("failover", "A", "C", ("Payments",), ("near",))


@pytest.fixture
def fan_in(tmp_path: Path) -> World:
    """Return clusters A and B, which are both copied to C, with a group on A."""
    world = World(config_in(tmp_path, FAN_IN), aliases=("A", "B", "C"))
    world.clusters["A"].produce("Payments", records=10)
    for source, target in (("A", "C"), ("B", "C"), ("C", "A")):
        world.copy(source, target)
    world.clusters["A"].commit("near", {TopicPartition("Payments", 0): 5})
    for source in "AB":
        ensure_topics(world.context(source, "C"))
    return world


CHAIN = FAN_IN.replace("A->C", "A->B").replace("C->A", "C->B")


@pytest.mark.parametrize(("known", "warnings"), [(True, 0), (False, 1)])
def test_a_copy_of_a_third_cluster_has_no_producers_that_miss_it(
    tmp_path: Path, known: bool, warnings: int
) -> None:
    world = World(config_in(tmp_path, CHAIN + "topics = .*"), aliases=("A", "B", "C"))
    world.clusters["B"].produce("A.Payments", records=10)
    world.clusters["C"].delete_topic("A.Payments")
    world.clusters["C"].add_topic("B.A.Payments")
    world.copy("B", "C", topic="A.Payments")
    ensure_topics(world.context("B", "C"))
    if known:
        world.clusters["B"].add_topic(internal_topics.replication("A"), 2)

    request = MoveRequest("failover", "B", "C", ("A.Payments",))
    plan = moves.plan(world.context("B", "C"), request, dry_run=True)

    found = [line for line in plan.warnings if line.startswith("topic A.Payments does not exist")]
    assert len(found) == warnings


def announces(
    world: World, client: str, subject: str, cluster: str, generation: int = 0, home: str = ""
) -> None:
    """Let a client that works on a cluster say so on all of them, as clients do."""
    ack = Ack(subject, client, generation, "resumed", cluster, world.clock(), host="h", home=home)
    for each in world.clusters.values():
        each.compacted_topic(internal_topics.CLIENTS).write({ack.key(): ack.value()})


def redirected(world: World, request: MoveRequest = OF_A) -> list[str]:
    """Return the warnings of a plan of clients on other clusters."""
    plan = moves.plan(world.context(request.source, request.target), request, dry_run=True)
    return [line for line in plan.warnings if line.startswith("clients on ")]


@pytest.mark.parametrize("mode", ["planned", "unplanned"])
@pytest.mark.parametrize("cluster", ["A", "B", "C", "D"])
def test_clients_on_no_cluster_are_in_danger_of_a_failover(
    fan_in: World, cluster: str, mode: Literal["planned", "unplanned"]
) -> None:
    """It redirects those on its source, for which it is meant, and no others."""
    announces(fan_in, "shop", "topic:Payments", cluster, home=cluster)
    announces(fan_in, "audit", "group:near", cluster)

    assert redirected(fan_in, replace(OF_A, mode=mode)) == []


BACK = MoveRequest("failback", "B", "P", ("Payments",))


def sent_to_b(world: World) -> None:
    """Let an earlier failover have sent a client of each home to B."""
    ensure_topics(world.context())
    route = Route(3, "B", "go", "earlier", world.clock(), decided=True)
    for each in world.clusters.values():
        each.compacted_topic(internal_topics.ROUTING).write({b"topic:Payments": route.value()})
    announces(world, "shop", "topic:Payments", "B", route.generation, home="P")
    announces(world, "desk", "topic:Payments", "B", route.generation, home="B")


def test_clients_that_a_failback_does_not_bring_home_are_named(world: World) -> None:
    """One is at home on its source, another has come from a third cluster."""
    sent_to_b(world)
    announces(world, "stall", "topic:Payments", "B", 3, home="C")

    [warning] = redirected(world, BACK)

    assert warning == (
        "clients on B (desk, stall) follow topic:Payments: the move redirects them to P, too, "
        "which is not their home; let those that must stay there follow no route, or leave these "
        "topics and groups out"
    )


def test_clients_that_no_route_has_moved_are_at_home(world: World) -> None:
    ensure_topics(world.context())
    announces(world, "desk", "topic:Payments", "B")

    [warning] = redirected(world, BACK)

    assert warning.startswith("clients on B (desk) follow topic:Payments: the move redirects them")


def test_groups_that_no_move_has_sent_to_the_source_may_be_at_home_there(world: World) -> None:
    ensure_topics(world.context())
    route = Route(3, "B", "go", "earlier", world.clock(), decided=True, homes=("P",))
    world.b.compacted_topic(internal_topics.ROUTING).write({b"group:near": route.value()})
    for group in ("near", "local"):
        world.b.commit(group, {TopicPartition("Payments", 0): 0})
    own = "no move has sent 1 group (local) to B: if B is their home, leave them out (--group"

    def found(request: MoveRequest) -> list[str]:
        plan = moves.plan(world.context(*"BP"), request, dry_run=True)
        return [one for one in plan.warnings if one.startswith(own)]

    assert len(found(BACK)) == 1
    assert found(replace(BACK, groups=("local", "near"))) == []

    away = Route(4, "B", "go", "everything", world.clock(), decided=True, homes=("P",))
    world.b.compacted_topic(internal_topics.ROUTING).write({b"home:P": away.value()})
    assert found(BACK) == []


@pytest.mark.parametrize(
    "request_", [replace(BACK, operation="failover"), replace(BACK, mode="unplanned")]
)
def test_a_move_away_from_its_source_is_meant_for_the_clients_at_home_there(
    world: World, request_: MoveRequest
) -> None:
    sent_to_b(world)

    assert redirected(world, request_) == []


def test_clients_that_announced_nothing_for_long_are_not_named(world: World) -> None:
    sent_to_b(world)
    world.passing(90_001)

    assert redirected(world, BACK) == []


PAIRS = """
clusters = A, B, C, D
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
C.bootstrap.servers = c:9092
D.bootstrap.servers = d:9092
A->C.enabled = true
C->A.enabled = true
B->D.enabled = true
D->B.enabled = true
topics = Payments.*
groups = .*
"""


THERE = Route(3, "D", "go", "m1", decided=True)


@pytest.fixture
def pairs(tmp_path: Path) -> World:
    """Return two pairs of clusters, A->C and B->D, after moves of their topic from B to D."""
    world = World(config_in(tmp_path, PAIRS), aliases=("A", "B", "C", "D"))
    world.clusters["A"].produce("Payments", records=10)
    world.copy("A", "C")
    world.copy("C", "A")
    world.clusters["A"].commit("near", {TopicPartition("Payments", 0): 5})
    for source, target in ("AC", "BD"):
        ensure_topics(world.context(source, target))
    for alias in "BD":
        routing = world.clusters[alias].compacted_topic(internal_topics.ROUTING)
        routing.write({b"topic:Payments": THERE.value()})
    announces(world, "shop", "topic:Payments", "D", THERE.generation, home="A")
    return world


@pytest.mark.parametrize("mode", ["planned", "unplanned"])
def test_what_clients_follow_to_a_third_cluster_does_not_leave_the_source(
    pairs: World, mode: Literal["planned", "unplanned"]
) -> None:
    """A and C do not hold the route, but its clients say there that they follow it."""
    request = replace(OF_A, groups=(), mode=mode)

    plan = moves.plan(pairs.context("A", "C"), request, dry_run=True)

    assert "topic:Payments is routed to D, so it cannot leave A" in plan.blocking[0]


def with_clock(world: World, ahead_ms: int) -> MoveContext:
    """Return the context of a host whose clock differs from the brokers'."""
    context = world.context("A", "C")
    flow = replace(context.forward, now_ms=lambda: world.clock() + ahead_ms)
    return replace(context, forward=flow)


@pytest.mark.parametrize("ahead_ms", [100_000, -100_000])
def test_who_is_present_is_judged_by_the_clock_of_the_brokers(pairs: World, ahead_ms: int) -> None:
    request = replace(OF_A, groups=())
    first = moves.plan(with_clock(pairs, ahead_ms), request, "m2")
    pairs.passing(90_001)
    later = moves.plan(with_clock(pairs, ahead_ms), request, "m2")

    assert "topic:Payments is routed to D" in first.blocking[0]
    assert later.blocking == ()
    announces(pairs, "shop", "topic:Payments", "D", THERE.generation, home="A")
    with pytest.raises(ConflictError, match="topic:Payments is routed to D"):
        moves.hold(with_clock(pairs, ahead_ms), "m2")


@pytest.mark.parametrize("mode", ["planned", "unplanned"])
def test_what_clients_of_another_home_follow_to_a_third_cluster_keeps_nobody_on_the_source(
    pairs: World, mode: Literal["planned", "unplanned"]
) -> None:
    announces(pairs, "shop", "topic:Payments", "D", THERE.generation, home="B")

    plan = moves.plan(pairs.context("A", "C"), replace(OF_A, mode=mode), dry_run=True)

    assert not [line for line in plan.blocking if "is routed to D" in line]


def test_a_move_of_everything_names_the_cluster_that_all_clients_follow(pairs: World) -> None:
    request = MoveRequest("failover", "A", "C", mode="unplanned")

    plan = moves.plan(pairs.context("A", "C"), request, dry_run=True)

    assert plan.blocking[0].startswith("all clients of A->C are already routed to D, by unknown;")


def test_a_hold_outranks_the_route_that_only_its_former_clients_know(pairs: World) -> None:
    """They have stopped; clients that start later read the routes of both moves."""
    pairs.passing(90_001)
    context = pairs.context("A", "C")
    moves.plan(context, OF_A, "m2")

    moves.hold(context, "m2")

    assert pairs.routes("C")["topic:Payments"].generation > THERE.generation
