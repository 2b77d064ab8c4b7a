"""A second disaster before the first return is settled: the plan on the cluster that returned."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import busy_world
from tests.unit.engine.moves.giving_up import UNPLANNED, Disaster, disaster

from srm.config.model import Config
from srm.domain.moves.disaster import Outcome
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import Route, merge_tables
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.domain.text.documents import split
from srm.engine.cluster_ports import away_cluster
from srm.engine.emission import emit
from srm.engine.moves.attempt import homes_to_move
from srm.engine.moves.context import MoveContext, ensure_topics
from srm.engine.moves.history import RoutingHistory
from srm.engine.moves.registers import level
from srm.engine.moves.store import MoveStore
from srm.engine.moves.tables import MoveRecords
from srm.engine.status.observing import read_known
from srm.errors import UnavailableError, UsageError
from srm_lab.testing.fake_switch import FakeSwitch

__all__ = ["disaster"]

BACK = replace(UNPLANNED, source="B", target="P")


@pytest.fixture
def returned(disaster: Disaster) -> Disaster:
    """Return the world after P was given up for B, and is there again, unsettled."""
    disaster.planned()
    disaster.through("hold", "apply", "go")
    for cluster in (disaster.world.p, disaster.world.b):
        cluster.add_topic(internal_topics.checkpoints("B"))
    disaster.world.p.add_topic(internal_topics.replication("B"), 2)
    disaster.world.copy("B", "P")
    disaster.world.report("B", "P")
    disaster.world.passing()
    return disaster


def without_b(world) -> MoveContext:
    whole, gone = world.context("B", "P"), away_cluster("B")
    return MoveContext(
        replace(whole.forward, source=gone, switch=FakeSwitch(world.p, "B")),
        replace(whole.reverse, target=gone),
        whole.monotonic,
        pause=whole.pause,
    )


def remember(world, cluster: str) -> None:
    """Let P know routes of a failback before all this, to a cluster."""
    ensure_topics(world.context())
    old = Route(3, cluster, "go", "m0", 1, decided=True, homes=("B", "P")).value()
    rows = dict.fromkeys((subject.encode() for subject in world.routes("B")), old)
    world.p.compacted_topic(internal_topics.ROUTING).write(rows)


@pytest.mark.parametrize("flow", ["forward", "reverse"])
def test_an_emission_writes_the_routes_that_a_returned_cluster_has_missed(
    returned: Disaster, flow: str
) -> None:
    """Also that of the flow which is paused until the return is settled."""
    world = returned.world
    remember(world, "P")

    for _ in range(2):  # P knows more homes of the clients: B gets these from it
        emit(getattr(world.context(), flow))

    assert world.routes("P") == world.routes("B")
    plan = moves.plan(without_b(world), BACK, "m2", dry_run=True)
    assert (plan.blocking, plan.group_names) == ((), ("far", "near"))


def test_a_returned_cluster_gets_the_plan_and_the_report_of_a_move_whatever_its_id(
    disaster: Disaster,
) -> None:
    """An id with colons, such as a time, left them on B alone: P knew no such move."""
    move_id = "P-lost-2026-11-28T22:05:00"
    moves.plan(disaster.context, UNPLANNED, move_id)
    for step in (moves.hold, moves.apply, moves.go, moves.report):
        step(disaster.context, move_id)
    unread = tuple(f"Payments-{number}: no leader" for number in range(50_000))
    outcome = Outcome(move_id, "P->B", "same", 7, "ann", unread=unread)  # in several records
    disaster.world.b.compacted_topic(internal_topics.MOVES).write(
        split(outcome.key(), outcome.value())
    )

    level(disaster.world.context())

    on_p = MoveStore([MoveRecords.read(disaster.world.p)])
    assert on_p.load(move_id)[1].step == "reported"
    assert on_p.report(move_id) is not None
    assert on_p.outcome(move_id) == outcome


def test_groups_leave_a_lost_cluster_that_a_move_sent_them_to_just_before(
    returned: Disaster,
) -> None:
    """B was lost before it left a checkpoint of theirs on P: the routes alone say where they are.

    A move of some topics leaves them: what they read is not known.
    """
    world = returned.world
    remember(world, "B")
    everything = replace(BACK, topics=(), groups=())

    plan = moves.plan(without_b(world), everything, "m2")
    some = moves.plan(without_b(world), replace(BACK, groups=()), "m3", dry_run=True)
    moves.hold(without_b(world), "m2")
    moves.apply(without_b(world), "m2")
    moves.go(without_b(world), "m2")

    assert (plan.blocking, plan.group_names) == ((), ("far", "near"))
    assert some.group_names == ()
    assert {(route.cluster, route.state) for route in world.routes("P").values()} == {("P", "go")}


def test_a_group_without_checkpoints_reads_again_from_its_own_commit_on_the_target(
    returned: Disaster,
) -> None:
    """P does not know how far it has read on B; auto.offset.reset decides nothing."""
    world = returned.world
    remember(world, "B")
    world.p.commit("near", {TopicPartition("Payments", 0): 97})

    plan = moves.plan(without_b(world), replace(BACK, topics=(), groups=()), "m2")

    assert plan.forecast is not None
    [near] = [group for group in plan.forecast.groups if group.group == "near"]
    assert (near.re_read, near.age_ms, plan.forecast.unseen) == (10, None, ())
    assert not [line for line in plan.warnings if "has no checkpoint" in line]


def test_the_forecast_of_a_flow_knows_own_commits_of_groups_without_checkpoints(
    returned: Disaster,
) -> None:
    world = returned.world
    remember(world, "B")

    forecast = read_known(without_b(world).forward).forecast(world.clock())

    assert [group.group for group in forecast.groups] == ["far", "near"]
    assert forecast.unseen == ()


def test_an_emission_fences_no_step_of_a_move_where_nothing_is_missing(returned: Disaster) -> None:
    world = returned.world
    emit(world.context("B", "P").forward)
    step = world.p.control_writer("srm-control-records")

    emit(world.context("B", "P").forward)

    step.write({internal_topics.ROUTING: {b"clock": b"{}"}})


def test_an_emission_reads_no_history_of_routes_that_are_the_same_on_both(
    returned: Disaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hold of thousands of subjects renews all of them, again and again."""
    world = returned.world
    emit(world.context("B", "P").forward)
    reads: list[str] = []
    monkeypatch.setattr(RoutingHistory, "read", lambda cluster: reads.append(cluster.alias))

    emit(world.context("B", "P").forward)

    assert not reads


def test_an_emission_during_a_hold_reads_neither_history_nor_plans_of_the_past(
    returned: Disaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its renewals reach one cluster after the other; that of a killed process, one alone."""
    world = returned.world
    emit(world.context("B", "P").forward)
    for number in range(3):
        moves.plan(world.context("B", "P"), BACK, f"past-{number}")
    subjects = [subject.encode() for subject in world.routes("B")]
    hold = Route(1 << 50, "B", "hold", "past-2", lease_ms=60_000).value()
    world.b.compacted_topic(internal_topics.ROUTING).write(dict.fromkeys(subjects, hold))
    plans, decode = list[bytes](), MovePlan.decode
    monkeypatch.setattr(RoutingHistory, "read", lambda _: pytest.fail("the history is read"))
    monkeypatch.setattr(MovePlan, "decode", lambda value: (plans.append(value), decode(value))[1])

    emit(world.context("B", "P").forward)

    assert plans == []


def test_a_repair_leaves_it_to_the_emission_to_name_a_silent_cluster(
    returned: Disaster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()

    emit(replace(returned.world.context().forward, source=away_cluster("P")))

    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_a_cluster_that_takes_no_routes_keeps_no_checkpoint_from_being_written(
    returned: Disaster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = returned.world
    world.start("near", "B", {"P.Payments": 101})

    def refuse(_: str) -> None:
        raise UnavailableError("no coordinator")

    monkeypatch.setattr(world.p, "control_writer", refuse)
    monkeypatch.setattr(world.b, "control_writer", refuse)
    emitted = emit(world.context("B", "P").forward)

    assert emitted.groups
    assert "no coordinator" in caplog.text


@pytest.mark.parametrize("named", [True, False])
def test_clients_are_taken_over_whose_routes_the_target_has_missed(
    returned: Disaster, *, named: bool
) -> None:
    """B died before routes were written to P: by what P knows its clients never left it."""
    world = returned.world
    emit(world.context("B", "P").forward, ["near", "far"])
    remember(world, "P")
    request = BACK if named else replace(BACK, topics=(), groups=())
    refused = moves.plan(without_b(world), request, "m2")

    plan = moves.plan(without_b(world), replace(request, reroute=True), "m3")
    for step in (moves.hold, moves.apply, moves.go):
        step(without_b(world), "m3")

    assert any("--reroute" in line for line in refused.blocking)
    assert (plan.blocking, plan.group_names) == ((), ("far", "near"))
    ours, former = world.routes("P"), world.routes("B")
    assert {merge_tables([former, ours])[one].cluster for one in former} == {"P"}


def test_a_planned_move_takes_over_from_no_other() -> None:
    with pytest.raises(UsageError, match="--mode unplanned"):
        MoveRequest("failover", "B", "P", reroute=True)


def test_an_unplanned_move_of_everything_sends_those_that_no_move_has_named(
    disaster: Disaster,
) -> None:
    """A client that starts afterwards would otherwise go to the lost cluster, its home."""
    disaster.planned(topics=(), groups=())
    disaster.through("hold")
    held = disaster.world.routes("B")
    disaster.through("apply", "go")

    routes = disaster.world.routes("B")
    assert routes["home:P"] == routes["group:near"]
    assert routes["home:B"] == replace(routes["home:P"], homes=("B",), left="")
    assert "home:P" not in held


@pytest.mark.parametrize(
    ("named", "other", "home"),
    [((), "", "P"), (("near",), "", "P"), (("near",), "P", "P"), (("near",), "B", "B")],
    ids=["everything", "all", "last", "some"],
)
def test_a_failback_of_all_that_is_left_brings_home_those_that_a_later_move_has_sent(
    config: Config, named: tuple[str, ...], other: str, home: str
) -> None:
    """A second move of everything, of a group that is gone since, has sent them once more.

    Nothing else could bring them home: of what is back, a move of everything is blocked.
    """
    world = busy_world(config)
    ensure_topics(world.context())
    there = Route(3, "B", "go", "m0", 1, decided=True, homes=("P",))
    routes = {
        "topic:Payments": there,
        "group:near": there,
        "home:P": replace(there, generation=9, move_id="m1"),
    }
    if other:
        routes["group:far"] = replace(there, generation=5, cluster=other)
        world.b.commit("far", {TopicPartition("P.Payments", 0): 11})
    records = {subject.encode(): route.value() for subject, route in routes.items()}
    for cluster in (world.p, world.b):
        cluster.compacted_topic(internal_topics.ROUTING).write(records)
    world.obey("near", "far")
    world.start("near", "B", {"P.Payments": 101})
    back = world.context("B", "P")
    moves.plan(back, MoveRequest("failback", "B", "P", groups=named), "m2")
    moves.hold(back, "m2")
    world.obey("near", alias="B")
    world.passing()
    moves.apply(back, "m2")
    moves.go(back, "m2")

    assert world.routes("P")["home:P"].cluster == world.routes("B")["home:P"].cluster == home


def test_a_move_of_some_leaves_those_alone_that_it_does_not_name(returned: Disaster) -> None:
    assert not [one for one in returned.world.routes("B") if one.startswith("home:")]


@pytest.mark.parametrize(
    ("routed", "mode", "homes"),
    [
        ({}, "planned", ()),
        ({"P": "B", "B": "B"}, "planned", ("P",)),
        ({"P": "P", "B": "P"}, "planned", ()),
        ({}, "unplanned", ("B", "P")),
        ({"C": "B", "P": "C"}, "unplanned", ("B", "C", "P")),
    ],
)
def test_a_planned_move_brings_home_alone_and_an_unplanned_one_takes_all(
    routed: dict[str, str], mode: str, homes: tuple[str, ...]
) -> None:
    """From B to P. A cluster that serves keeps clients that no gate has looked at."""
    routes = {f"home:{home}": Route(1, there, "go") for home, there in routed.items()}
    everything = MoveRequest("failback", "B", "P", mode=mode)

    assert homes_to_move(everything, routes) == homes
