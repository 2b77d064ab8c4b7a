"""Moves after go: who resumed where, what is left behind, and a crash at every single write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import (
    REQUEST,
    WRITES_OF_A_MOVE,
    Killed,
    World,
    busy_world,
    held,
    planned,
    run_through,
)
from tests.unit.engine.moves.test_fencing import two_topics

from srm.config.model import Config
from srm.domain.moves.announcements import Ack, AckState
from srm.domain.moves.request import MoveRequest
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.groups.ledger import read_ledger
from srm.engine.moves.context import MoveContext
from srm.engine.moves.store import MoveStore
from srm.errors import (
    ConflictError,
    UnavailableError,
)


def gone(world: World) -> MoveContext:
    context = held(world)
    moves.apply(context, "m1")
    moves.go(context, "m1")
    return context


HOUR = 3_600_000


def say(world: World, ack: Ack) -> None:
    """Let a client write what it says to the cluster that it is about."""
    world.clusters[ack.cluster].compacted_topic(internal_topics.CLIENTS).write(
        {ack.key(): ack.value()}
    )


def acknowledge(
    world: World,
    group: str,
    position: int,
    client: str = "c1",
    *,
    state: AckState = "processed",
    ages: Mapping[AckState, int] | None = None,
) -> None:
    """Let a client say that it works on B; its own clock is an hour ahead."""
    generation = world.routes("B")[f"group:{group}"].generation
    positions = {"P.Payments-0": position}
    time_ms = world.clock() + HOUR
    ack = Ack(f"group:{group}", client, generation, state, "B", time_ms, positions)
    say(world, replace(ack, ages_ms=ages or {state: 0, "resumed": 0}))


def test_verification_waits_for_groups_that_had_members(world: World) -> None:
    context = gone(world)

    assert moves.verify(context, "m1").waiting == (
        "group far has no members on B yet",
        "group near has no members on B yet",
    )
    world.start("near", "B", {"P.Payments": 97})
    world.start("far", "B", {"P.Payments": 11})
    world.passing(1_500)
    status = moves.verify(context, "m1")
    assert status.done
    report = moves.report(context, "m1")
    assert (report.rto_seconds, report.assigned_seconds) == (3.5, 3.5)
    assert {group.rto_end for group in report.groups.values()} == {"committed"}


def test_verification_waits_ten_seconds_for_a_producer_that_has_records_to_write(
    world: World,
) -> None:
    """A producer without records is not waited for, and needs to write none."""
    context = gone(world)
    for group, position in (("far", 10), ("near", 96)):
        acknowledge(world, group, position)
    generation = world.routes("B")["topic:Payments"].generation
    known = ("topic:Payments", "shop", generation, "resumed", "B", 0)
    shop = Ack(*known, ages_ms={"resumed": 0}, unwritten={"refused": 3})  # type: ignore[arg-type]
    say(world, replace(shop, client="idle", unwritten={}))
    say(world, shop)

    assert moves.verify(context, "m1").waiting == ("producer shop waits: refused",)
    world.passing(10_000)
    assert moves.verify(context, "m1").done
    report = moves.report(context, "m1")
    problem = "1 producer (shop) followed and cannot write: refused; 3 records waiting"
    assert (report.problems, report.result.verdict) == ((problem,), "not clean")

    say(world, replace(shop, state="processed", unwritten={}))
    assert moves.watch_residue(context, "m1").result.verdict == "clean"


def test_what_clients_say_counts_from_when_the_broker_got_it_less_its_age(world: World) -> None:
    """The hold was 2 s before go, and the clients' clocks are an hour ahead."""
    context = gone(world)
    world.passing(1_000)
    acknowledge(world, "far", 10, state="resumed", ages={"resumed": 100})
    acknowledge(world, "near", 96, state="resumed", ages={"resumed": 0})
    waiting = moves.verify(context, "m1").waiting
    assert waiting == (
        "group far has members on B and has not processed anything yet",
        "group near has members on B and has not processed anything yet",
    )
    world.passing(4_000)
    acknowledge(world, "far", 10, ages={"resumed": 4_100, "processed": 3_500})
    acknowledge(world, "near", 96, ages={"resumed": 4_000, "processed": 500})
    assert moves.verify(context, "m1").done

    report = moves.report(context, "m1")
    assert report.groups["far"].assigned_seconds == 2.9
    assert report.groups["far"].rto_seconds == 3.5
    assert (report.rto_seconds, report.assigned_seconds) == (6.5, 3.0)
    assert report.groups["near"].rto_end == "processed"


def test_a_commit_made_during_a_look_is_not_dated_before_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its member had said that it works: that is the earlier of both."""
    context = gone(world)
    world.start("far", "B", {"P.Payments": 11})
    world.passing(1_000)
    committed = world.b.committed_offsets

    def work_while_looked_at(group: str) -> dict[TopicPartition, int]:
        if group == "near" and not world.b.groups(["near"])["near"].members:
            acknowledge(world, "near", 96)
            world.passing(1_000)
            world.start("near", "B", {"P.Payments": 97})
        return committed(group)

    monkeypatch.setattr(world.b, "committed_offsets", work_while_looked_at)
    assert moves.verify(context, "m1").done

    near = moves.report(context, "m1").groups["near"]
    assert (near.rto_seconds, near.rto_end) == (3.0, "processed")


def test_the_clock_of_whoever_looks_does_not_count(world: World) -> None:
    context = gone(world)
    late = replace(context.forward, now_ms=lambda: world.clock() + HOUR)
    context = replace(context, forward=late)
    world.passing(1_000)
    world.start("near", "B", {"P.Payments": 97})
    world.start("far", "B", {"P.Payments": 11})
    moves.verify(context, "m1")

    report = moves.report(context, "m1")
    assert (report.rto_seconds, report.rto_steps["resume"]) == (3.0, 1.0)


def test_a_group_that_went_back_in_between_is_not_looked_at(world: World) -> None:
    """What it does in a later move would be taken for the end of this one."""
    context = gone(world)
    acknowledge(world, "far", 10)
    world.start("near", "B", {})
    world.passing(10_000)
    moves.verify(context, "m1")
    moves.report(context, "m1")
    back = world.context("B", "P")
    moves.plan(back, MoveRequest("failback", "B", "P", ("Payments",), ("near", "far")), "m2")
    moves.hold(back, "m2")
    world.b.commit("near", {TopicPartition("P.Payments", 0): 101})
    watch = moves.watch_residue(context, "m1")

    assert (watch.residue_over, watch.rto_seconds) == (False, None)


def test_the_renewals_of_a_hold_do_not_put_its_beginning_off(world: World) -> None:
    context = held(world)
    world.passing(25_000)
    moves.wait_status(context, "m1")
    moves.apply(context, "m1")
    moves.go(context, "m1")
    acknowledge(world, "far", 10)
    acknowledge(world, "near", 96)
    moves.verify(context, "m1")

    assert moves.report(context, "m1").rto_seconds == 27.0


def test_a_hold_that_was_killed_between_the_clusters_counts_from_when_both_have_it(
    world: World,
) -> None:
    context = planned(world)
    world.writes.before[world.writes.count + 2] = fail_once
    with pytest.raises(Killed):
        moves.hold(context, "m1")
    assert MoveStore.read(context).progress("m1").step == "holding"
    world.passing(5_000)
    moves.hold(context, "m1")

    assert MoveStore.read(context).progress("m1").step == "held"
    both_held = world.clock()
    world.obey("near", "far")
    world.passing()
    moves.apply(context, "m1")
    moves.go(context, "m1")
    assert MoveStore.read(context).progress("m1").hold_stamp_ms == both_held


def fail_once() -> None:
    raise Killed


def test_a_group_with_nothing_to_read_is_back_when_it_has_members(world: World) -> None:
    """Else its RTO would be the time until somebody writes a record."""
    world.p.commit("near", {TopicPartition("Payments", 0): 100})
    context = gone(world)
    world.start("near", "B", {})
    acknowledge(world, "far", 10)
    assert moves.verify(context, "m1").done
    world.passing(60_000)
    acknowledge(world, "near", 101)
    moves.verify(context, "m1")

    report = moves.report(context, "m1")
    assert (report.rto_seconds, report.groups["near"].rto_end) == (2.0, "assigned")
    [note] = report.notes
    assert note.startswith("group near had nothing to process on B: its RTO is the time until")


def gone_without_place(world: World) -> MoveContext:
    """Move the group ``fresh``, which has committed nothing."""
    world.start("fresh", "P", {})
    context = planned(world, replace(REQUEST, groups=("fresh",)))
    moves.hold(context, "m1")
    world.obey("fresh")
    world.passing(2_000)
    moves.apply(context, "m1")
    moves.go(context, "m1")
    return context


def test_a_group_without_a_place_has_nothing_to_process_only_if_its_members_say_where_they_start(
    world: World,
) -> None:
    """What auto.offset.reset decides is not known to a move."""
    context = gone_without_place(world)
    world.b.join("fresh")

    waits = moves.verify(context, "m1").waiting

    assert waits == ("group fresh has members on B and has not processed anything yet",)
    assert not any("nothing to process" in one for one in moves.report(context, "m1").notes)
    world.passing(3_000)
    world.b.commit("fresh", {TopicPartition("P.Payments", 0): 7})
    assert moves.verify(context, "m1").done
    report = moves.report(context, "m1")
    assert (report.groups["fresh"].rto_end, report.rto_seconds) == ("committed", 5.0)


def test_a_group_without_a_place_that_starts_at_the_end_has_nothing_to_process(
    world: World,
) -> None:
    context = gone_without_place(world)
    acknowledge(world, "fresh", 101, state="resumed")

    assert moves.verify(context, "m1").done
    assert moves.report(context, "m1").groups["fresh"].rto_end == "assigned"


def test_a_group_that_takes_long_for_its_first_record_is_found_by_the_watch(world: World) -> None:
    context = gone(world)
    acknowledge(world, "far", 10)
    world.start("near", "B", {})
    assert not moves.verify(context, "m1").done
    world.passing(10_000)
    assert moves.verify(context, "m1").done, "it is there, and has had its time"
    report = moves.report(context, "m1")
    assert (report.ok, report.rto_seconds, report.assigned_seconds) == (True, None, 2.0)

    world.passing(30_000)
    world.start("near", "B", {"P.Payments": 97})
    assert moves.watch_residue(context, "m1").rto_seconds == 42.0


def test_what_members_could_not_commit_before_they_left_is_read_again(world: World) -> None:
    context = held(world)
    generation = world.routes("B")["group:far"].generation
    lost = {"Payments-0": 7}
    ack = Ack("group:far", "c1", generation, "held", "P", world.clock(), uncommitted=lost)
    earlier = replace(ack, client="c2", generation=generation - 1, uncommitted={"Payments-0": 50})
    say(world, ack)
    say(world, earlier)
    moves.apply(context, "m1")
    moves.go(context, "m1")
    # On B it goes on counting what it loses there, which is not the move's doing.
    say(world, replace(ack, state="processed", cluster="B", uncommitted={"Payments-0": 9}))
    acknowledge(world, "near", 96)
    moves.verify(context, "m1")

    report = moves.report(context, "m1")
    assert (report.groups["far"].re_read, report.groups["near"].re_read) == (7, 0)
    assert report.groups["far"].uncommitted == {"Payments-0": 7}
    assert not report.ok


def finished(world: World) -> MoveContext:
    """A clean move with its report."""
    context = gone(world)
    acknowledge(world, "far", 10)
    acknowledge(world, "near", 96)
    moves.verify(context, "m1")
    assert moves.report(context, "m1").ok
    return context


def test_the_source_is_watched_for_as_long_as_was_asked_for(world: World) -> None:
    context = finished(world)
    report = moves.kept_report(context, "m1").report
    assert report is not None
    assert (report.residue_over, report.residue_until_ms) == (False, world.clock() + 300_000)
    assert not moves.watch_residue(context, "m1").residue_over
    writes = world.writes.count
    assert not moves.watch_residue(context, "m1").residue_over
    assert world.writes.count == writes, "nothing new is nothing to keep"

    world.passing(200_000)
    world.p.produce("Payments", records=4)
    watch = moves.watch_residue(context, "m1")
    assert (watch.residue_over, watch.ok) == (False, False)
    assert watch.problems == (
        "topic Payments got 4 records on P after go: a producer did not follow",
    )
    assert moves.kept_report(context, "m1").report == watch

    world.passing(100_000)
    assert moves.watch_residue(context, "m1").residue_over
    world.p.produce("Payments", records=5)
    last = moves.watch_residue(context, "m1")
    assert (last.residue_over, last.residue) == (True, {"Payments": 4})
    assert moves.kept_report(context, "m1").report == last


def carry_back(world: World) -> None:
    """Move Payments and its groups back by another move."""
    world.copy("B", "P")
    back = world.context("B", "P")
    moves.plan(back, MoveRequest("failback", "B", "P", ("Payments",), ("near", "far")), "m2")
    moves.hold(back, "m2")
    world.passing(2_000)
    moves.apply(back, "m2")
    moves.go(back, "m2")


def test_what_is_written_after_the_producers_were_moved_back_is_no_residue(world: World) -> None:
    context = finished(world)
    carry_back(world)
    world.p.produce("Payments", records=4)

    watch = moves.watch_residue(context, "m1")
    assert (watch.residue_over, watch.ok, watch.residue) == (True, True, {})


def test_a_topic_that_stays_is_watched_when_another_one_was_moved_back(config: Config) -> None:
    world = two_topics(config)
    both = replace(REQUEST, topics=("Payments", "Payments-eu"), groups=("near", "far", "eu"))
    context = held(world, both)
    moves.apply(context, "m1")
    moves.go(context, "m1")
    carry_back(world)
    world.p.produce("Payments", records=2)
    world.p.produce("Payments-eu", records=3)

    watch = moves.watch_residue(context, "m1")
    assert (watch.residue_over, watch.residue) == (False, {"Payments-eu": 3})


def test_a_source_is_watched_while_a_move_back_has_not_led_anybody_there(world: World) -> None:
    """It only holds them, and is released: whoever writes to the source follows no route."""
    context = finished(world)
    back = world.context("B", "P")
    moves.plan(back, MoveRequest("failback", "B", "P", ("Payments",), ("near", "far")), "m2")
    moves.hold(back, "m2")
    assert not moves.watch_residue(context, "m1").residue_over
    moves.release(back, "m2")
    world.p.produce("Payments", records=4)

    assert moves.watch_residue(context, "m1").residue == {"Payments": 4}


def test_a_source_that_is_away_is_watched_again_when_it_is_back(world: World) -> None:
    context = finished(world)
    world.p.produce("Payments", records=4)
    world.p.fail()
    assert moves.watch_residue(context, "m1").ok
    world.p.recover()

    assert moves.watch_residue(context, "m1").residue == {"Payments": 4}


def test_before_go_there_is_no_residue_to_watch_for(world: World) -> None:
    context = held(world)

    with pytest.raises(ConflictError, match="residue exists only after go"):
        moves.watch_residue(context, "m1")


def test_a_group_that_resumed_elsewhere_than_planned_is_counted(world: World) -> None:
    context = gone(world)
    acknowledge(world, "far", 4)
    acknowledge(world, "near", 99)
    acknowledge(world, "near", 101, "c2")
    moves.verify(context, "m1")

    report = moves.report(context, "m1")
    assert (report.groups["far"].re_read, report.groups["far"].skipped) == (6, 0)
    assert (report.groups["near"].re_read, report.groups["near"].skipped) == (0, 3)
    assert not report.ok


def test_a_second_member_starts_where_the_first_has_come_to(world: World) -> None:
    context = gone(world)
    acknowledge(world, "far", 10)
    acknowledge(world, "far", 55, "c2")
    acknowledge(world, "near", 96)
    moves.verify(context, "m1")

    assert moves.report(context, "m1").ok


def test_what_is_written_to_the_old_side_after_go_is_residue(world: World) -> None:
    context = gone(world)
    world.p.produce("Payments", records=4)
    acknowledge(world, "far", 10)
    acknowledge(world, "near", 96)

    assert moves.verify(context, "m1").residue == {"Payments": 4}
    assert not moves.report(context, "m1").ok


def test_all_of_a_topic_that_was_created_again_on_the_old_side_is_residue(world: World) -> None:
    context = gone(world)
    acknowledge(world, "far", 10)
    acknowledge(world, "near", 96)
    world.p.delete_topic("Payments")
    world.p.add_topic("Payments")
    world.p.produce("Payments", records=4)

    assert moves.verify(context, "m1").residue == {"Payments": 4}


def test_the_new_side_alone_finishes_a_move_that_was_decided(world: World) -> None:
    """The old side may go down right after go."""
    context = gone(world)
    acknowledge(world, "far", 10)
    acknowledge(world, "near", 96)
    world.p.fail()

    assert moves.verify(context, "m1").done
    assert moves.report(context, "m1").ok


def test_the_old_side_may_go_down_while_clients_are_sent_away(world: World) -> None:
    context = held(world)
    moves.apply(context, "m1")
    world.writes.watch = lambda: world.p.fail() if "go" in states(world, "B") else None
    progress = moves.go(context, "m1")

    assert progress.step == "gone"


def states(world: World, alias: str) -> set[str]:
    return {route.state for route in world.routes(alias).values()}


def test_before_the_decision_both_sides_are_needed(world: World) -> None:
    context = planned(world)
    world.b.fail()

    with pytest.raises(UnavailableError):
        moves.hold(context, "m1")
    assert states(world, "P") == set()


def test_the_report_is_kept_on_both_clusters(world: World) -> None:
    context = gone(world)
    acknowledge(world, "far", 10)
    acknowledge(world, "near", 96)
    moves.verify(context, "m1")
    report = moves.report(context, "m1")

    for alias in ("P", "B"):
        records = world.clusters[alias].compacted_topic(internal_topics.MOVES).read()
        assert records[b"report:m1"] == report.value()
        assert {key for key in records if b"html" in key} == set(), "pages are made when asked for"
    assert [line.move_id for line in MoveStore.read(context).lines()] == ["m1"]


def test_a_finished_move_stays_finished_when_later_moves_went_back(world: World) -> None:
    context = gone(world)
    world.start("near", "B", {})
    world.start("far", "B", {})
    moves.verify(context, "m1")
    moves.report(context, "m1")
    back = world.context("B", "P")
    moves.plan(back, MoveRequest("failback", "B", "P", ("Payments",), ("near", "far")), "m2")
    moves.hold(back, "m2")
    world.obey("near", "far", alias="B")
    world.passing()
    moves.apply(back, "m2")
    moves.go(back, "m2")

    with pytest.raises(ConflictError, match="superseded by move m2; nothing was moved"):
        moves.go(context, "m1")
    assert MoveStore.read(context).progress("m1").step == "reported"
    assert {r.cluster for r in world.routes("B").values()} == {"P"}
    with pytest.raises(ConflictError):
        moves.release(context, "m1")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, WRITES_OF_A_MOVE + 1))
def test_killed_at_any_write_a_rerun_finishes_and_nobody_goes_too_early(
    config: Config, number: int, after: bool
) -> None:
    world = busy_world(config)
    world.writes.die_at = (number, after)

    def nobody_goes_too_early() -> None:
        for alias in ("P", "B"):
            if any(route.cluster == "B" for route in world.routes(alias).values()):
                assert world.offsets("B", "near") == {"P.Payments-0": 96, "Payments-0": 0}
                assert world.offsets("B", "far") == {"P.Payments-0": 10, "Payments-0": 0}

    world.writes.watch = nobody_goes_too_early
    with pytest.raises(Killed):
        run_through(world)
    world.writes.die_at = None
    run_through(world)

    assert world.routes("P") == world.routes("B")
    assert {(r.cluster, r.state) for r in world.routes("B").values()} == {("B", "go")}
    assert MoveStore.read(world.context()).progress("m1").step == "gone"
    entries = read_ledger(world.b, world.b.topics())
    assert entries.entry("near", TopicPartition("P.Payments", 0)).settled


def test_the_crash_test_covers_every_write_of_a_move(world: World) -> None:
    run_through(world)

    assert world.writes.count == WRITES_OF_A_MOVE


def test_what_a_late_member_could_not_commit_counts_after_its_group_works_there(
    world: World,
) -> None:
    """The fast member of the group works on B by then: it reads those records again."""
    context = gone(world)
    world.start("near", "B", {"P.Payments": 101})
    world.start("far", "B", {"P.Payments": 101})
    acknowledge(world, "far", 10, "fast")
    world.passing(1_000)
    assert moves.verify(context, "m1").done
    before = moves.report(context, "m1").groups["far"]
    generation = world.routes("B")["group:far"].generation
    lost = {"Payments-0": 20}
    for instance in ("i1", "i2"):
        said = ("group:far", "slow", generation, "processed", "B", world.clock())
        say(world, Ack(*said, uncommitted=lost, instance=instance))  # type: ignore[arg-type]

    found = moves.watch_residue(context, "m1").groups["far"]

    assert (before.re_read, found.uncommitted) == (0, {"Payments-0": 40})
    assert found.re_read == 40
