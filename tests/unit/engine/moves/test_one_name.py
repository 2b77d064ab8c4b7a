"""Moves of a topic that both flows copy under its own name, after go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import (
    PROPERTIES,
    REQUEST,
    World,
    busy_world,
    config_in,
    held,
)
from tests.unit.engine.moves.giving_up import UNPLANNED, Disaster

from srm.domain.groups.group_sync import LedgerEntry
from srm.domain.groups.proof import PROVEN, Verdict
from srm.domain.moves.announcements import Ack
from srm.domain.moves.plan import PartitionMove
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import FenceKind
from srm.domain.names import internal_topics
from srm.domain.names.flow_topics import RecordedCopies
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import Position, Run
from srm.domain.verification.compared_record import ComparedRecord
from srm.engine.moves.context import MoveContext
from srm.engine.moves.planning import findings
from srm.errors import UnavailableError

THERE, BACK = Flow("P", "B"), Flow("B", "P")
PLACE = TopicPartition("Payments", 0)
UNPLANNED_ALL = replace(UNPLANNED, topics=())
POLICY = "replication.policy.class = IdentityReplicationPolicy\n"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """100 payments of P, all of them copied; near has read them all."""
    world = World(config_in(tmp_path, PROPERTIES + POLICY))
    world.p.produce("Payments", records=100)
    world.b.produce("Payments", records=100)
    world.maps[THERE].put(PLACE, [Run(0, 0, 100)], Position(100, 100, 100))
    world.maps[BACK].put(PLACE, [], Position(100, 100, 100))
    world.start("near", "P", {"Payments": 100})
    return world


def test_a_commit_of_another_clusters_move_that_passes_unread_records_is_a_warning(
    tmp_path: Path,
) -> None:
    """The group has read partition 0 on P; a move from C has placed it in partition 1 of B."""
    world, other = (
        World(config_in(tmp_path, PROPERTIES + POLICY), partitions=2),
        PLACE._replace(partition=1),
    )
    for place in (PLACE, other):
        for cluster in (world.p, world.b):
            cluster.produce("Payments", place.partition, records=40)
        world.maps[THERE].put(place, [Run(0, 0, 40)], Position(40, 40, 40))
        world.maps[BACK].put(place, [], Position(40, 40, 40))
    world.p.commit("near", {PLACE: 40})
    world.b.commit("near", {other: 40})

    plan = moves.plan(world.context(), replace(REQUEST, groups=("near",)), dry_run=True)

    assert plan.blocking == ()
    [warning] = [text for text in plan.warnings if "committed nothing" in text]
    assert "near has committed nothing for Payments-1 on P: it continues at its own" in warning


def gone(world: World) -> MoveContext:
    """Send near to B, where producers write 7 payments, which are copied to P."""
    context = held(world, replace(REQUEST, groups=("near",)))
    moves.apply(context, "m1")
    moves.go(context, "m1")
    world.b.produce("Payments", records=7)
    world.p.produce("Payments", records=7)
    return context


def copied_back(world: World) -> None:
    """Let the flow B->P report what it has copied."""
    world.maps[BACK].put(PLACE, [Run(100, 100, 7)], Position(107, 107, 107))


def test_what_the_opposite_flow_copies_after_go_is_no_residue(world: World) -> None:
    context = gone(world)

    before = moves.verify(context, "m1").residue
    copied_back(world)
    after = moves.verify(context, "m1").residue

    assert not any((*before.values(), *after.values()))


@pytest.mark.parametrize("examined", range(100, 108))
def test_copies_of_transactions_are_no_residue_however_far_they_are_examined(
    world: World, examined: int
) -> None:
    """Each marker of B ends a run; P->B has examined some of the copies already."""
    context = gone(world)
    runs = [Run(100, 100, 2), Run(103, 102, 2), Run(106, 104, 2), Run(109, 106, 1)]
    world.maps[BACK].put(PLACE, runs, Position(111, 107, 111))
    world.maps[THERE].put(PLACE, [Run(0, 0, 100)], Position(examined, 100, examined))

    assert not any(moves.verify(context, "m1").residue.values())


@pytest.mark.parametrize("examined", [False, True])
def test_what_a_producer_writes_among_these_copies_is_residue(world: World, examined: bool) -> None:
    """``examined``: P->B has passed it; else B->P has, with a copy that follows."""
    context = gone(world)
    copied_back(world)
    world.p.produce("Payments", records=3)
    if examined:
        world.maps[THERE].put(PLACE, [Run(0, 0, 100), Run(107, 107, 3)], Position(110, 110, 110))
    else:
        world.p.produce("Payments", records=1)
        runs = [Run(100, 100, 7), Run(107, 110, 1)]
        world.maps[BACK].put(PLACE, runs, Position(108, 111, 108))

    assert moves.verify(context, "m1").residue == {"Payments": 3}


def test_a_group_that_has_only_new_records_of_the_target_to_read_is_waited_for(
    world: World,
) -> None:
    context = gone(world)
    world.start("near", "B", {"Payments": 100})

    assert moves.verify(context, "m1").waiting == (
        "group near has members on B and has not processed anything yet",
    )


@pytest.mark.parametrize(("started", "skipped", "re_read"), [(104, 4, 0), (98, 0, 2)])
def test_records_of_either_cluster_that_a_group_skips_or_reads_again_are_counted(
    world: World, started: int, skipped: int, re_read: int
) -> None:
    context = gone(world)
    copied_back(world)
    generation = world.routes("B")["group:near"].generation
    positions = {"Payments-0": started}
    ack = Ack("group:near", "c1", generation, "processed", "B", world.clock(), positions)
    world.b.compacted_topic(internal_topics.CLIENTS).write({ack.key(): ack.value()})
    moves.verify(context, "m1")

    found = moves.report(context, "m1").groups["near"]

    assert (found.skipped, found.re_read) == (skipped, re_read)


def test_a_map_that_cannot_be_read_keeps_the_residue_that_is_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = gone(world)

    def load(*_: object) -> None:
        raise UnavailableError("P does not answer")

    monkeypatch.setattr(world.maps[BACK], "load", load)

    assert moves.verify(context, "m1").residue == {}


@pytest.mark.parametrize(("fence", "warned"), [("acl", True), ("none", False)])
@pytest.mark.parametrize("wanted", [replace(REQUEST, groups=("near",)), UNPLANNED_ALL])
def test_a_plan_warns_of_a_fence_that_shuts_out_the_way_back(
    world: World, fence: FenceKind, warned: bool, wanted: MoveRequest
) -> None:
    """The opposite flow writes into the topic whose writes the fence denies."""
    context = Disaster(world).context if wanted.is_unplanned else world.context()

    plan = moves.plan(context, replace(wanted, fence=fence), dry_run=True)

    assert plan.blocking == ()
    assert warned == any("fence acl stops B->P, too" in line for line in plan.warnings)


class Alike(str):
    """A name with the hash of all others, so that sets have the order of their making."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 1


def test_another_process_holds_what_was_planned_though_more_is_copied_now(world: World) -> None:
    """Sets of names have another order there; Airflow plans and holds in two processes."""

    def process(*topics: str) -> MoveContext:
        made, names = world.context(), frozenset(map(Alike, topics))
        copies = RecordedCopies(frozenset(), frozenset(topics))
        known = replace(made.forward.config, joined=names, recorded=copies)
        return replace(made, forward=replace(made.forward, config=known))

    moves.plan(process("Payments", "Refunds"), replace(REQUEST, groups=("near",)), "m1")
    moves.hold(process("Refunds", "Payments"), "m1")


def test_a_fence_on_a_topic_that_no_flow_copies_into_is_no_danger(tmp_path: Path) -> None:
    world = busy_world(config_in(tmp_path))

    plan = moves.plan(world.context(), replace(REQUEST, fence="acl"), dry_run=True)

    assert not any("fence" in line for line in plan.warnings)


def test_a_topic_that_only_the_target_has_is_no_copy_that_a_loss_is_counted_of(
    tmp_path: Path,
) -> None:
    disaster = Disaster(busy_world(config_in(tmp_path)))
    disaster.world.b.add_topic("Payments2")
    disaster.world.b.produce("Payments2", records=3)
    context = disaster.context
    names = config_in(tmp_path, PROPERTIES + POLICY).flow(THERE)
    for recorded in ({"Payments"}, {"Payments", "Payments2"}):
        copies = RecordedCopies(frozenset(), frozenset(recorded))
        known = replace(context.forward, config=replace(names, recorded=copies))

        plan = moves.plan(replace(context, forward=known), UNPLANNED_ALL, dry_run=True)

        assert plan.forecast is not None
        assert {topic.topic for topic in plan.forecast.topics} == recorded


@pytest.fixture
def apart(tmp_path: Path) -> World:
    """P holds p0..p49, b0..b9, and B b0..b9, p0..p49; near has read p0..p47 on P and left."""
    world = World(config_in(tmp_path, PROPERTIES + POLICY))
    for cluster in (world.p, world.b):
        cluster.produce("Payments", records=60)
    world.maps[THERE].put(PLACE, [Run(0, 10, 50)], Position(60, 60, 60))
    world.maps[BACK].put(PLACE, [Run(0, 50, 10)], Position(60, 60, 60))
    world.start("near", "P", {"Payments": 48})
    context = held(world, replace(REQUEST, groups=("near",)))
    moves.wait_status(context, "m1")
    world.passing()
    moves.apply(context, "m1")
    moves.go(context, "m1")
    assert world.offsets("B", "near") == {"Payments-0": 0}, "it has read no record of B"
    return world


def way_back(world: World, read: int) -> PartitionMove:
    """Plan to move near back, after it has read B's log up to an offset."""
    world.start("near", "B", {"Payments": read})
    request = replace(REQUEST, source="B", target="P", groups=("near",))
    [group] = moves.plan(world.context("B", "P"), request, dry_run=True).groups
    [position] = group.positions
    return position


@pytest.mark.parametrize("read", [1, 5, 10, 30])
def test_a_group_that_goes_back_before_it_has_met_what_it_had_read_keeps_its_place(
    apart: World, read: int
) -> None:
    """Its own commit on P counts: it has read p0..p47 there, and on B only B's records."""
    found = way_back(apart, read)

    assert (found.state, found.resume, found.re_read) == ("translated", 48, min(read, 10))


def test_a_commit_beyond_records_of_the_other_cluster_that_were_not_read_stays_a_conflict(
    apart: World,
) -> None:
    """P's log has lost its end, and copies of what near has not read have these offsets."""
    apart.maps[BACK].put(PLACE, [Run(0, 40, 10)], Position(60, 50, 60))

    assert way_back(apart, 5).state == "conflict"


def test_a_group_that_was_set_on_the_target_since_has_another_place_there(apart: World) -> None:
    ledger = apart.p.compacted_topic(internal_topics.LEDGER)
    topic_id = apart.p.topics()["Payments"].topic_id
    apart.passing()
    later = LedgerEntry("near", PLACE, topic_id, None, 20, "B", "m0", settled=True)
    ledger.write({later.key(): later.value()})

    assert way_back(apart, 10).state == "conflict"


@pytest.mark.parametrize("is_alike", [True, False])
def test_positions_are_proven_by_the_next_record_of_each_flow(world: World, is_alike: bool) -> None:
    """Near has read all payments of P, and the first of the three that B has sent there."""
    sent = [ComparedRecord(0, b"k", b"%d" % number, (), 0) for number in range(3)]
    world.b.produce_records("Payments", 0, sent)
    copies = sent if is_alike else [one._replace(value=b"-") for one in sent]
    world.p.produce_records("Payments", 0, copies)
    world.maps[BACK].put(PLACE, [Run(100, 100, 3)], Position(103, 103, 103))
    world.maps[THERE].put(PLACE, [Run(0, 0, 100)], Position(103, 100, 103))
    world.p.commit("near", {PLACE: 101})

    found = findings(world.context(), replace(REQUEST, groups=("near",)), "m1")

    [verdict] = found.verdicts.values()
    differs = "the record at 101 of Payments-0 differs from its copy at 101 in value"
    assert verdict == (PROVEN if is_alike else Verdict("unproven", differs))
