"""Three clusters: a move, and its release, redirect only the clients that are on its source."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import World, config_in
from tests.unit.engine.moves.control.sites import (
    NAMES,
    SUBJECTS,
    announce,
    watching,
    without,
    world_of,
)

from srm.domain.moves.announcements import Ack
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.request import Mode, MoveRequest
from srm.domain.moves.routing import ERA, KnownRoutes, Route
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.moves.attempt import InForce
from srm.engine.moves.context import MoveContext
from srm.engine.moves.reading import topics_to_move
from srm.engine.moves.store import MoveStore
from srm.engine.moves.tables import ControlTables


def hold(world: World, source: str, target: str, move_id: str) -> MoveContext:
    world.clusters[source].commit("audit", {TopicPartition("Payments", 0): 5})
    context = world.context(source, target)
    request = MoveRequest("failover", source, target, ("Payments",), ("audit",))
    moves.plan(context, replace(request, accept_stray_offsets=True), move_id)
    moves.hold(context, move_id)
    return context


def move(world: World, source: str, target: str, move_id: str) -> None:
    context = hold(world, source, target, move_id)
    world.passing()
    moves.wait_status(context, move_id)
    moves.apply(context, move_id)
    moves.go(context, move_id)
    for one, other in ((source, target), (target, source)):
        world.copy(one, other)


def places(world: World) -> dict[str, str]:
    """Return by home where clients work, in lower case while they are held there."""
    found = dict[str, str]()
    for home in NAMES:
        watchers = [watching(world, home, order) for order in (NAMES, NAMES[::-1])]
        routes = [watcher.route(subject) for watcher in watchers for subject in SUBJECTS]
        [found[home]] = {
            one.cluster if one.state == "go" else one.cluster.lower() for one in routes
        }
    return found


@pytest.mark.parametrize(
    ("flows", "before", "held", "after"),
    [
        (("AB", "CB"), (), "aBC", "ABC"),
        (("AB", "AC"), (), "aBC", "ABC"),
        (("AB", "BC", "CA"), (), "aBC", "ABC"),
        (("AB", "BC", "CA"), ("CA",), "aBa", "ABA"),
        (("AB", "BC"), ("AB", "BA"), "aaC", "AAC"),
    ],
)
def test_a_release_leads_each_client_back_to_where_it_was(
    tmp_path: Path, flows: tuple[str, ...], before: tuple[str, ...], held: str, after: str
) -> None:
    world = world_of(tmp_path, *flows)
    for number, flow in enumerate(before):
        move(world, flow[0], flow[1], f"m{number}")

    context = hold(world, "A", "B", "m9")
    there = places(world)
    moves.release(context, "m9")

    assert "".join(there.values()) == held
    assert "".join(places(world).values()) == after


def test_clients_go_on_along_a_chain_and_a_release_leaves_them_where_the_first_move_led(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path, "AB", "BC")
    move(world, "A", "B", "m1")
    assert places(world) == {"A": "B", "B": "B", "C": "C"}

    context = hold(world, "B", "C", "m2")
    assert places(world) == {"A": "b", "B": "b", "C": "C"}
    moves.release(context, "m2")
    assert places(world) == {"A": "B", "B": "B", "C": "C"}

    move(world, "B", "C", "m3")
    assert places(world) == {"A": "C", "B": "C", "C": "C"}


def test_a_hold_whose_lease_is_over_leads_each_client_back_too(tmp_path: Path) -> None:
    world = world_of(tmp_path, "AB", "CB")
    hold(world, "A", "B", "m1")

    for home in NAMES:
        watcher = watching(world, home)
        watcher._clock = lambda: float("inf")
        for alias in NAMES:
            watcher._lapse(alias, ReadToEnd(), watcher._overdue(alias))
        assert {watcher.route(subject).cluster for subject in SUBJECTS} == {home}
        assert {watcher.route(subject).state for subject in SUBJECTS} == {"go"}


class ReadToEnd:
    """The routing topic of a cluster without news."""

    def read_to_end(self, _timeout_s: float) -> tuple[list[tuple[bytes, bytes]], bool]:
        return [], True


def test_a_released_move_keeps_no_later_one_from_the_other_cluster(tmp_path: Path) -> None:
    """Its route leads clients of B to B: those of A have never left A."""
    world = world_of(tmp_path, "AB", "BC")
    moves.release(hold(world, "B", "A", "m1"), "m1")
    world.passing()

    move(world, "A", "B", "m2")

    assert places(world) == {"A": "B", "B": "B", "C": "C"}


def says(world: World, home: str, cluster: str, generation: int, client: str) -> None:
    """Let a producer that works on a cluster say so on all of them, as clients do."""
    ack = Ack(
        *("topic:Payments", client, generation, "resumed", cluster, world.clock()),
        home=home,
    )
    for each in world.clusters.values():
        each.compacted_topic(internal_topics.CLIENTS).write({ack.key(): ack.value()})


@pytest.mark.parametrize("home", ["B", "C"])
def test_a_move_waits_for_no_producer_that_it_does_not_redirect(tmp_path: Path, home: str) -> None:
    """It works on the topic of this name on its own cluster, and never leaves that."""
    world = world_of(tmp_path, "AB", "CB")
    says(world, home, home, 0, "shop")

    plan_warnings = moves.plan(
        world.context("A", "B"), MoveRequest("failover", "A", "B", ("Payments",)), dry_run=True
    ).warnings
    move(world, "A", "B", "m1")

    assert not [line for line in plan_warnings if "shop" in line]
    assert watching(world, home).route("topic:Payments").cluster == home


def test_a_client_of_another_cluster_hides_no_writer_that_follows_no_route(tmp_path: Path) -> None:
    world = world_of(tmp_path, "AB", "CB")
    says(world, "B", "B", 0, "shop")
    world.clusters["A"].produce("Payments", producer_id=7, timestamp_ms=world.clock())
    world.copy("A", "B")
    context = hold(world, "A", "B", "m1")
    world.passing(2_000)

    status = moves.wait_status(context, "m1")

    assert any("follows no route may have written" in each for each in status.blocking)


def test_one_name_on_two_pairs_of_clusters_moves_on_each_alone(tmp_path: Path) -> None:
    """The client of C says that it follows a route of its own topic to another cluster."""
    world = world_of(tmp_path, "AB", "CB")
    says(world, "C", "D", 3, "shop")

    move(world, "A", "B", "m1")

    assert places(world)["A"] == "B"


def late(world: World, reads: str) -> str:
    """Return where clients of each home work that read some clusters only now."""
    found = [watching(world, home, reads).route(one).cluster for home in NAMES for one in SUBJECTS]
    assert found[::2] == found[1::2]
    return "".join(found[::2])


def test_a_topic_of_one_name_moves_from_two_clusters_to_a_third(tmp_path: Path) -> None:
    """The second move and its release leave those that the first one led where they are."""
    world = world_of(tmp_path, "AB", "CB")
    move(world, "A", "B", "m1")

    context = hold(world, "C", "B", "m2")
    assert (places(world), late(world, "B")) == ({"A": "B", "B": "B", "C": "c"}, "BBC")
    moves.release(context, "m2")
    assert (places(world), late(world, "B")) == ({"A": "B", "B": "B", "C": "C"}, "BBC")

    world.passing()
    move(world, "C", "B", "m3")
    assert (places(world), late(world, "B")) == ({"A": "B", "B": "B", "C": "B"}, "BBB")
    assert not moves.report(world.context("A", "B"), "m1").problems


def lose(world: World, source: str, target: str) -> MovePlan:
    """Move everything away from a cluster that is lost."""
    context = without(world, source, target)
    request = MoveRequest("failover", source, target, mode="unplanned")
    planned = moves.plan(context, request, f"lost-{source}")
    for step in (moves.hold, moves.apply, moves.go):
        step(context, planned.move_id)
    return planned


def test_two_sites_that_share_a_target_are_lost_one_after_the_other(tmp_path: Path) -> None:
    """Topics and groups of one name; who reads the target alone finds its way, too."""
    world = world_of(tmp_path, "AB", "CB")

    for source, there in (("C", "ABB"), ("A", "BBB")):
        planned = lose(world, source, "B")
        assert not planned.blocking
        assert planned.topics == ("Payments",)
        assert late(world, "B") == there


def test_clients_follow_on_where_an_unplanned_move_did_not_know_of_them(tmp_path: Path) -> None:
    """C knows nothing of the move from A to B; a client of A reads that on A, in any order."""
    world = world_of(tmp_path, "AB", "BC")
    move(world, "A", "B", "m1")
    route = world.routes("B")["topic:Payments"]
    on = replace(route, generation=route.generation + 1, cluster="C", homes=("B",), left="B")
    routing = world.clusters["C"].compacted_topic(internal_topics.ROUTING)
    routing.write({subject.encode(): on.value() for subject in SUBJECTS})

    assert places(world) == {"A": "C", "B": "C", "C": "C"}


def test_a_source_that_returns_leads_on_the_clients_whose_way_to_it_it_alone_knew(
    tmp_path: Path,
) -> None:
    """A to B unplanned, then B dies: C knows nothing of A's clients, and A knows of no move."""
    world = world_of(tmp_path, "AB", "BC")
    move(world, "B", "C", "m2")
    there = Route(1, "B", "go", "m1", decided=True, homes=("A",))
    [of_b, of_c] = [ControlTables.read(world.clusters[alias]) for alias in "BC"]
    away = {subject: replace(route, generation=2) for subject, route in of_c.routes.items()}
    of_b, of_c = replace(of_b, routes=dict.fromkeys(away, there)), replace(of_c, routes=away)

    missed = of_b.lacks(of_c, frozenset("BC")).routes
    back = of_c.lacks(replace(of_b, routes=missed), frozenset("BC")).routes

    for subject in SUBJECTS:
        assert missed[subject] == back[subject]
        routes = (away[subject], missed[subject])
        for seen in (routes, routes[::-1]):
            known = {home: KnownRoutes(home) for home in NAMES}
            for each, route in product(known.values(), seen):
                each.add(subject, route)
            assert {each.of(subject).cluster for each in known.values()} == {"C"}


def test_what_clients_told_a_target_names_their_homes_where_the_source_is_lost(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path, "AB", "BC")
    says(world, "A", "B", 7, "shop")

    hold(world, "B", "C", "m1")

    assert world.routes("C")["topic:Payments"].homes == ("A", "B")
    assert world.routes("C")["group:audit"].homes == ("B",)


def test_a_move_of_some_clients_outranks_an_earlier_one_of_all(tmp_path: Path) -> None:
    """An unplanned move to A has led there what started without a route."""
    world = world_of(tmp_path, "AB")
    sent = Route(ERA, "A", "go", "m0", decided=True, homes=("B",))
    world.clusters["A"].compacted_topic(internal_topics.ROUTING).write({b"home:B": sent.value()})

    move(world, "A", "B", "m1")

    assert {world.routes("A")[subject].generation for subject in SUBJECTS} == {ERA + 1}


@pytest.mark.parametrize("mode", ["planned", "unplanned"])
def test_topics_that_only_another_source_of_a_fan_in_has_do_not_move(
    tmp_path: Path, mode: Mode
) -> None:
    """Their routes name no cluster: producers of B would go to C with those of A."""
    lines = ["clusters = A, B, C", "groups = .*", "A->C.topics = Payments", "B->C.topics = Orders"]
    lines += [f"{alias}.bootstrap.servers = {alias.lower()}:9092" for alias in NAMES]
    lines += ["A->C.enabled = true", "B->C.enabled = true", "topics = .*"]
    lines += ["replication.policy.class = IdentityReplicationPolicy"]
    world = World(config_in(tmp_path, "\n".join(lines)), aliases=NAMES, topics=())
    for alias, topics in (("A", ["Payments"]), ("B", ["Orders"]), ("C", ["Payments", "Orders"])):
        for topic in topics:
            world.clusters[alias].add_topic(topic)
    request = MoveRequest("failover", "A", "C", mode=mode)

    moving = topics_to_move(world.context("A", "C"), request, world.clusters["C"].topics())

    assert moving == ("Payments",)


@pytest.mark.parametrize("later", ["", "CA", "BA released"])
def test_an_unplanned_move_leaves_clients_where_they_work_on_a_healthy_cluster(
    tmp_path: Path, later: str
) -> None:
    """C never saw the move from A to B, but clients of A say there that they work on B.

    A later move of other clients of the same names outranks it on C.
    """
    world = world_of(tmp_path, "AB", "BC", "CA")
    move(world, "A", "B", "m1")
    if later.endswith("released"):
        moves.release(hold(world, "B", "A", "m2"), "m2")
    elif later:
        move(world, later[0], later[1], "m2")
    announce(world)
    context = without(world, "A", "C")

    plan = moves.plan(context, MoveRequest("failover", "A", "C", mode="unplanned"), "m3")
    if not plan.blocking:
        for step in (moves.hold, moves.apply, moves.go):
            step(context, "m3")

    assert bool(plan.blocking) is (later != "CA")
    alone = "clients at home on A (topic:Payments, group:audit) work on B: not moved"
    ways = "to move them, too, plan a move from B, or take over its clients with --reroute"
    named = any(line.startswith(f"{alone}: {ways}") for line in plan.warnings)
    assert named is (later == "CA")
    assert all("are already routed to B" in line for line in plan.blocking)
    assert places(world) == {"A": "B", "B": "B", "C": "C"}


def test_named_clients_that_work_elsewhere_move_with_reroute_alone(tmp_path: Path) -> None:
    world = world_of(tmp_path, "AB", "BC", "CA")
    move(world, "A", "B", "m1")
    announce(world)
    context = without(world, "A", "C")
    named = MoveRequest("failover", "A", "C", ("Payments",), ("audit",), mode="unplanned")

    stays = moves.plan(context, named, "m2")
    moves.plan(context, replace(named, reroute=True), "m3")
    for step in (moves.hold, moves.apply, moves.go):
        step(context, "m3")

    assert {found.id for found in stays.findings if found.blocks} >= {"routed"}
    assert all("--reroute" in found.text for found in stays.findings if found.id == "routed")
    assert places(world) == {"A": "C", "B": "B", "C": "C"}


def test_a_move_knows_that_an_unplanned_one_of_everything_leads_on_its_clients(
    tmp_path: Path,
) -> None:
    """C knew nothing of the group, so only its route for clients at home on B leads it."""
    world = world_of(tmp_path, "AB", "BC")
    move(world, "A", "B", "m1")
    on = Route(ERA, "C", "go", "m2", decided=True, homes=("B",), left="B")
    routing = world.clusters["B"].compacted_topic(internal_topics.ROUTING)
    routing.write({b"home:B": on.value()})
    plan, _ = MoveStore.read(world.context("A", "B")).load("m1")

    now = InForce.read(world.context("A", "B"), plan)

    assert now.later == dict.fromkeys(SUBJECTS, "m2")
    assert now.away == {*SUBJECTS}
