"""Consumers that are on the source where a move has no member to see, or none any more."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import REQUEST, World, busy_world, held, planned
from tests.unit.engine.moves.test_gone import gone

from srm.config.model import Config
from srm.domain.groups.group_sync import LedgerEntry
from srm.domain.moves.request import MoveRequest
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import ByGroup
from srm.engine.control.control_topics import ensure_compacted
from srm.errors import GateClosedError
from srm.logs import warn_once

PAYMENTS = TopicPartition("Payments", 0)


@pytest.fixture
def world(config: Config) -> World:
    return busy_world(config)


def working(world: World) -> None:
    """Let both groups work on the target."""
    for group in ("near", "far"):
        world.start(group, "B", {"P.Payments": 101})
    world.passing(11_000)


def test_a_consumer_that_assigns_by_itself_keeps_the_gate_closed_while_it_commits(
    world: World,
) -> None:
    world.obey("far")
    world.report("P", "B")
    context = planned(world)
    moves.hold(context, "m1")
    world.obey("near")
    world.p.commit("far", {PAYMENTS: 25})
    world.passing()

    [reason] = moves.wait_status(context, "m1").blocking
    assert reason.startswith("group far has no members on P, but its commits of Payments-0 change")
    with pytest.raises(GateClosedError, match="still reads there"):
        moves.apply(context, "m1")
    world.passing(round(REQUEST.slow_writer_seconds * 1000))
    assert moves.wait_status(context, "m1").ready


def test_the_last_commit_of_a_member_that_leaves_keeps_no_gate_closed(world: World) -> None:
    context = planned(world)
    moves.hold(context, "m1")
    moves.wait_status(context, "m1")
    world.p.commit("far", {PAYMENTS: 25})
    world.obey("near", "far")
    world.passing()

    assert moves.wait_status(context, "m1").ready


def test_a_transaction_that_decides_what_a_group_committed_keeps_no_gate_closed(
    world: World,
) -> None:
    context = held(world)
    world.p.commit_in("tx", "far", {PAYMENTS: 25})
    moves.wait_status(context, "m1")
    world.p.end_transaction("tx")
    world.passing()

    assert moves.wait_status(context, "m1").ready


def test_a_consumer_that_commits_on_the_source_after_go_is_a_problem(world: World) -> None:
    context = gone(world)
    world.p.commit("far", {PAYMENTS: 60})
    working(world)

    assert moves.verify(context, "m1").done
    report = moves.report(context, "m1")
    assert not report.ok
    [problem] = report.problems
    assert problem == (
        "group far was read on P after go by a consumer that assigns partitions by itself, or has "
        "left, its commits moved: Payments-0 from 10 to 60: stop it there"
    )


def test_a_group_that_moves_after_its_topic_is_watched_for_commits_on_the_source(
    world: World,
) -> None:
    for group in ("near", "far"):
        context = planned(world, replace(REQUEST, topics=(), groups=(group,)), group)
        moves.hold(context, group)
        world.obey(group)
        world.passing(6_000)
        moves.apply(context, group)
        moves.go(context, group)
    world.p.commit("far", {PAYMENTS: 60})
    working(world)

    moves.verify(context, "far")
    [problem] = moves.report(context, "far").problems
    assert problem.endswith("its commits moved: Payments-0 from 10 to 60: stop it there")


def test_a_member_that_comes_back_on_the_source_is_named_by_the_watch(world: World) -> None:
    context = gone(world)
    working(world)
    assert moves.verify(context, "m1").done
    assert moves.report(context, "m1").ok
    world.p.join("near")

    [problem] = moves.watch_residue(context, "m1").problems
    assert problem == "group near was read on P after go by app@127.0.0.1: stop it there"

    world.p.commit("near", {PAYMENTS: 100})
    world.p.leave("near")
    [problem] = moves.watch_residue(context, "m1").problems
    assert problem == (
        "group near was read on P after go by app@127.0.0.1, its commits moved: Payments-0 from 95 "
        "to 100: stop it there"
    )
    revision = moves.kept_report(context, "m1").report.revision
    world.p.commit("near", {PAYMENTS: 101})
    moves.watch_residue(context, "m1")
    assert moves.kept_report(context, "m1").report.revision == revision, "the same is no news"


def test_what_srm_itself_commits_on_the_source_makes_no_problem(world: World) -> None:
    context = gone(world)
    ensure_compacted(world.p, internal_topics.LEDGER)
    topic_id = world.p.topics()["Payments"].topic_id
    entry = LedgerEntry("far", PAYMENTS, topic_id, 10, 60, "B", "sync B->P 1")
    world.p.compacted_topic(internal_topics.LEDGER).write({entry.key(): entry.value()})
    world.p.commit("far", {PAYMENTS: 60})
    working(world)

    assert moves.verify(context, "m1").done
    assert moves.report(context, "m1").ok


def test_what_srm_commits_on_the_source_during_the_look_makes_no_problem(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Group sync follows a busy group: the ledger says 61 after the offset was read as 60."""
    context = gone(world)
    ensure_compacted(world.p, internal_topics.LEDGER)
    topic_id = world.p.topics()["Payments"].topic_id

    def write(offset: int) -> None:
        entry = LedgerEntry(
            "far", PAYMENTS, topic_id, offset - 1, offset, "B", "sync", settled=True
        )
        world.p.compacted_topic(internal_topics.LEDGER).write({entry.key(): entry.value()})
        world.p.commit("far", {PAYMENTS: offset})

    read = world.p.commits_of

    def commits_of(groups: Collection[str]) -> ByGroup[Mapping[TopicPartition, int]]:
        found = read(groups)
        write(61)
        return found

    write(60)
    working(world)
    with monkeypatch.context() as patched:
        patched.setattr(world.p, "commits_of", commits_of)
        assert moves.verify(context, "m1").done

    assert moves.report(context, "m1").ok
    world.p.commit("far", {PAYMENTS: 70})
    assert "from 10 to 70" in str(moves.watch_residue(context, "m1").problems)


def test_what_a_group_does_on_the_source_after_the_move_back_makes_no_problem(world: World) -> None:
    context = gone(world)
    working(world)
    moves.verify(context, "m1")
    moves.report(context, "m1")
    for group in ("near", "far"):
        world.b.leave(group)
    world.copy("B", "P")
    back = MoveRequest("failback", "B", "P", ("Payments",), ("near", "far"))
    returning = world.context("B", "P")
    moves.plan(returning, back, "m2")
    moves.hold(returning, "m2")
    world.passing()
    moves.apply(returning, "m2")
    moves.go(returning, "m2")
    world.start("far", "P", {"Payments": 100})

    assert moves.watch_residue(context, "m1").ok


def test_a_source_that_is_away_after_go_is_looked_at_again(world: World) -> None:
    context = gone(world)
    working(world)
    world.p.join("near")
    world.p.fail()
    assert moves.verify(context, "m1").done
    world.p.recover()

    assert not moves.watch_residue(context, "m1").ok


def test_a_group_whose_commits_the_cluster_hides_is_logged_once_by_all_looks(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    context = gone(world)
    world.b.hide_group("far")
    warn_once.cache_clear()  # another test may have logged the same line

    for _ in range(3):
        moves.verify(context, "m1")

    assert len([one for one in caplog.messages if "commits of group far on B" in one]) == 1
