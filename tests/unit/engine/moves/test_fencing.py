"""Processes that come too late, clusters that are away, holds that nobody renews."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests import moves
from tests.overrides import overrides
from tests.unit.engine.moves.control.moving import (
    REQUEST,
    THREE_CLUSTERS,
    WRITES_OF_A_MOVE,
    World,
    busy_world,
    config_in,
    held,
    planned,
    run_through,
)
from tests.unit.engine.moves.giving_up import Disaster
from tests.waiting import eventually

from srm.config.model import Config
from srm.domain.moves.announcements import Ack
from srm.domain.moves.progress import MoveProgress
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import LEASE_MS, Route, merge_tables
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import TopicSpec
from srm.engine.control.control_topics import ensure_compacted
from srm.engine.moves.context import MoveContext
from srm.engine.moves.store import MoveStore
from srm.errors import ConflictError, GateClosedError, SrmError, UnavailableError

MOVES = internal_topics.MOVES
ROUTING = internal_topics.ROUTING


def ready(world: World) -> MoveContext:
    context = held(world)
    moves.apply(context, "m1")
    return context


def going_to(world: World, alias: str) -> set[tuple[str, str]]:
    return {(route.cluster, route.state) for route in world.routes(alias).values()}


def assert_consistent(world: World) -> None:
    """Check that clients are where the move says, whichever cluster they read."""
    progress = MoveStore.read(world.context()).progress("m1")
    merged = merge_tables([world.routes("P"), world.routes("B")])
    clients = {(route.cluster, route.state) for route in merged.values()}
    if progress.is_decided:
        assert clients == {("B", "go")}
    elif progress.step == "released":
        assert clients == {("P", "go")}
    else:
        assert clients <= {("P", "hold")}
        assert all(route.lease_ms for route in merged.values())


@pytest.mark.parametrize("number", range(1, WRITES_OF_A_MOVE + 1))
def test_whatever_a_process_stalls_before_what_another_has_finished_stays(
    config: Config, number: int
) -> None:
    """The late hold: it was computed before go, and lands after it."""
    world = busy_world(config)
    world.writes.before[number] = lambda: run_through(world)
    with suppress(SrmError):  # it may be told that it came too late
        run_through(world)

    assert MoveStore.read(world.context()).progress("m1").step == "gone"
    assert going_to(world, "P") == going_to(world, "B") == {("B", "go")}


@pytest.mark.parametrize("number", range(1, WRITES_OF_A_MOVE + 1))
def test_a_release_at_any_moment_of_a_move_wins_or_loses_as_a_whole(
    config: Config, number: int
) -> None:
    world = busy_world(config)
    released: list[MoveProgress] = []

    def release() -> None:
        with suppress(SrmError):
            released.append(moves.release(world.context(), "m1"))

    world.writes.before[number] = release
    with suppress(SrmError):
        run_through(world)

    assert_consistent(world)
    if any(progress.step == "released" for progress in released):
        assert MoveStore.read(world.context()).progress("m1").step == "released"
    assert world.routes("P") == world.routes("B")


@pytest.mark.parametrize("number", range(1, WRITES_OF_A_MOVE + 1))
def test_a_process_of_an_earlier_attempt_does_not_decide_for_a_later_one(
    config: Config, number: int
) -> None:
    """It has looked at clients that had stopped; those of the later attempt have not."""
    world = busy_world(config)

    def again() -> None:
        context = world.context()
        with suppress(SrmError):
            moves.release(context, "m1")
            world.start("near", "P", {"Payments": 96})
            moves.hold(context, "m1")

    world.writes.before[number] = again
    with suppress(SrmError):
        run_through(world)

    assert_consistent(world)
    if "active" in {group.state for group in world.p.groups(["near"]).values()}:
        assert "B" not in {cluster for cluster, _ in going_to(world, "B")}


def test_a_release_and_a_go_that_race_end_on_one_cluster_and_both_know_it(world: World) -> None:
    context = ready(world)
    outcome: list[str] = []
    # Before the decision: the renewal is two writes, and the intent one.
    world.writes.before[world.writes.count + 4] = lambda: outcome.append(
        moves.release(world.context(), "m1").step
    )

    with pytest.raises(GateClosedError, match="is over: hold it again"):
        moves.go(context, "m1")
    assert outcome == ["released"]
    assert going_to(world, "P") == going_to(world, "B") == {("P", "go")}


def test_a_late_record_of_an_older_version_strands_nobody(world: World) -> None:
    """It writes without a fence, so its hold is the last record of the log."""
    context = ready(world)
    late = {s: r.value() for s, r in world.routes("P").items()}
    moves.go(context, "m1")
    for cluster in (world.p, world.b):
        cluster.compacted_topic(ROUTING).write({s.encode(): value for s, value in late.items()})

    assert moves.wait_status(context, "m1").ready
    world.start("near", "B", {"P.Payments": 96})
    world.start("far", "B", {"P.Payments": 10})
    back = MoveRequest("failback", "B", "P", ("Payments",), ("near", "far"))
    world.copy("B", "P")
    assert moves.plan(world.context("B", "P"), back, "m2").blocking == ()


def test_a_damaged_record_of_somebody_else_blocks_no_move(world: World) -> None:
    ensure_compacted(world.p, ROUTING)
    ensure_compacted(world.p, internal_topics.MOVES)
    world.p.compacted_topic(ROUTING).write({b"group:other": b"?"})
    ensure_compacted(world.p, internal_topics.CLIENTS)
    world.p.compacted_topic(internal_topics.CLIENTS).write({b"group:other:c": b"?"})
    world.p.compacted_topic(internal_topics.MOVES).write(
        {b"progress:other": b"?", b"plan:other": b"?"}
    )
    run_through(world)

    assert going_to(world, "B") == {("B", "go")}


# ----- one cluster is away


def test_a_release_reaches_clients_through_the_target_alone(world: World) -> None:
    context = ready(world)
    world.p.fail()
    assert moves.release(context, "m1").step == "released"
    world.p.recover()

    assert {r.state for r in world.routes("P").values()} == {"hold"}
    assert_consistent(world)


def test_what_a_release_could_not_write_is_written_by_the_next_step_of_whatever_move(
    world: World,
) -> None:
    context = ready(world)
    world.p.fail()
    moves.release(context, "m1")
    world.p.recover()
    moves.plan(world.context("B", "P"), MoveRequest("failback", "B", "P"), "other")

    assert world.routes("P") == world.routes("B")
    assert going_to(world, "P") == {("P", "go")}


def test_a_release_reaches_clients_through_the_source_alone(world: World) -> None:
    context = ready(world)
    world.b.fail()
    assert moves.release(context, "m1").step == "released"
    world.b.recover()

    assert_consistent(world)
    with pytest.raises(GateClosedError):
        moves.go(context, "m1")
    assert going_to(world, "B") == {("P", "go")}


def test_a_release_that_does_not_reach_the_target_is_refused_where_go_may_have_decided(
    world: World,
) -> None:
    context = ready(world)
    # The decision, after renewal, look and intent: the target takes it and is not heard of again.
    world.writes.before[world.writes.count + 4] = world.b.fail
    with pytest.raises(UnavailableError):
        moves.go(context, "m1")

    with pytest.raises(ConflictError, match="may have decided so: release it when B is back"):
        moves.release(context, "m1")
    world.b.recover()
    assert moves.release(context, "m1").step == "released"


def test_the_intent_of_a_go_survives_everything_but_an_end(world: World) -> None:
    context = ready(world)
    world.writes.before[world.writes.count + 4] = world.b.fail
    with pytest.raises(UnavailableError):
        moves.go(context, "m1")
    world.b.recover()
    moves.hold(context, "m1")
    moves.apply(context, "m1")
    world.b.fail()

    with pytest.raises(ConflictError, match="may have decided so"):
        moves.release(context, "m1")


def test_a_release_without_the_source_says_what_it_cannot_know(world: World) -> None:
    """The hold may have reached the source before it went away."""
    context = planned(world)
    world.p.fail()

    with pytest.raises(UnavailableError, match="holds no client on B, and P does not answer"):
        moves.release(context, "m1")


def test_the_source_learns_of_a_decision_when_it_is_back(world: World) -> None:
    context = ready(world)
    world.writes.watch = lambda: world.p.fail() if "B" in str(going_to(world, "B")) else None
    moves.go(context, "m1")
    world.writes.watch = lambda: None
    world.p.recover()
    assert going_to(world, "P") == {("P", "hold")}

    moves.go(context, "m1")
    assert world.routes("P") == world.routes("B")
    assert MoveStore.read(context).progress("m1").step == "gone"


def test_a_write_whose_answer_is_lost_is_found_by_the_same_step(world: World) -> None:
    context = ready(world)
    lost = [UnavailableError("no answer")]

    def lose_the_answer() -> None:
        if lost and "B" in str(going_to(world, "B")):
            raise lost.pop()

    world.writes.watch = lose_the_answer
    assert moves.go(context, "m1").step == "gone"
    assert not lost
    assert world.routes("P") == world.routes("B")


def test_a_topic_of_an_earlier_version_gets_the_brokers_time(world: World) -> None:
    ensure_compacted(world.p, ROUTING)
    planned(world)

    for cluster in (world.p, world.b):
        assert overrides(cluster, [ROUTING])[ROUTING]["message.timestamp.type"] == ("LogAppendTime")


@pytest.mark.parametrize("topic", [ROUTING, internal_topics.CLIENTS])
@pytest.mark.parametrize("alias", ["P", "B"])
def test_a_cluster_that_does_not_stamp_beats_or_announcements_is_named_with_the_command(
    world: World, alias: str, topic: str
) -> None:
    ensure_compacted(world.clusters[alias], topic)

    [problem] = moves.plan(world.context(), REQUEST, dry_run=True).blocking

    assert f"{topic} on {alias} has message.timestamp.type=CreateTime" in problem
    assert problem.endswith("--add-config message.timestamp.type=LogAppendTime")


# ----- the lease


def beats(world: World, alias: str) -> set[int]:
    return {route.beat for route in world.routes(alias).values()}


def test_whoever_waits_renews_the_hold_when_a_third_of_the_lease_has_passed(world: World) -> None:
    context = held(world)
    moves.wait_status(context, "m1")
    assert beats(world, "P") == beats(world, "B") == {1}
    world.passing(20_000)
    moves.wait_status(context, "m1")

    assert beats(world, "P") == beats(world, "B") == {2}


@pytest.mark.parametrize("step", [moves.wait_status, moves.apply])
def test_a_slow_step_renews_the_hold_while_it_lasts(
    world: World, monkeypatch: pytest.MonkeyPatch, step: Callable[[MoveContext, str], object]
) -> None:
    context = held(world)
    monkeypatch.setattr("srm.engine.moves.holding._RENEW_S", 0.01)
    before, commits = max(beats(world, "P")), world.b.commits_of

    def commits_of(groups: Collection[str]) -> object:
        """Answer as late as a frozen broker: the hold was renewed twice in the meantime."""
        eventually(lambda: min(beats(world, "P")) > before + 2, "renewals", 30)
        return commits(groups)

    monkeypatch.setattr(world.b, "commits_of", commits_of)
    step(context, "m1")

    assert not any(one.name == "srm-hold" for one in threading.enumerate())


def test_a_look_at_the_status_writes_nothing(world: World) -> None:
    context = held(world)
    world.passing(50_000)
    before = world.writes.count

    assert moves.status(context, "m1").ready
    assert world.writes.count == before


def test_a_repeated_hold_is_a_renewal(world: World) -> None:
    context = held(world)
    moves.hold(context, "m1")

    assert beats(world, "P") == beats(world, "B") == {2}
    assert {route.generation for route in world.routes("P").values()} == {1}


def test_go_does_not_decide_when_the_look_took_most_of_the_lease(world: World) -> None:
    context = ready(world)
    world.writes.before[world.writes.count + 3] = lambda: world.passing(46_000)

    with pytest.raises(GateClosedError, match="only 14 s of the hold's 60 s are left"):
        moves.go(context, "m1")
    assert going_to(world, "B") == {("P", "hold")}
    assert moves.go(context, "m1").step == "gone"


def test_go_decides_after_a_look_of_minutes_if_no_lease_ended_before_the_next_renewal(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ready(world)
    monkeypatch.setattr("srm.engine.moves.holding._RENEW_S", 0.01)
    commits, gaps = world.b.commits_of, [46_000, 46_000]

    def commits_of(groups: Collection[str]) -> object:
        """Answer late: the second renewal after each gap was certainly sent after it."""
        while gaps:
            world.passing(gaps.pop())
            before = max(beats(world, "P"))
            eventually(lambda at=before: min(beats(world, "P")) > at + 1, "renewals", 30)
        return commits(groups)

    monkeypatch.setattr(world.b, "commits_of", commits_of)
    assert moves.go(context, "m1").step == "gone"


def test_go_does_not_decide_after_a_look_in_which_the_lease_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, commits = ready(world), world.b.commits_of

    def commits_of(groups: Collection[str]) -> object:
        world.passing(LEASE_MS + 1)
        return commits(groups)

    monkeypatch.setattr(world.b, "commits_of", commits_of)
    with pytest.raises(GateClosedError, match="only 0 s of the hold's 60 s are left"):
        moves.go(context, "m1")
    assert going_to(world, "B") == {("P", "hold")}


@pytest.mark.parametrize("late_s", [61, 600, 6 * 3600])
@pytest.mark.parametrize("step", ["wait_status", "apply", "go"])
def test_a_step_after_the_end_of_its_hold_changes_nothing_and_the_next_hold_has_its_own_limit(
    world: World, step: str, late_s: int
) -> None:
    """Go hours later sent clients away in the morning, which had gone back at night."""
    ready(world)
    world.passing(late_s * 1_000)
    writes, context = world.writes.count, world.context()

    if step == "wait_status":
        status = moves.wait_status(context, "m1")
        assert status.timed_out
        said = status.blocking[0]
    else:
        with pytest.raises((ConflictError, GateClosedError)) as refused:
            getattr(moves, step)(context, "m1")
        said = str(refused.value)
    assert "the hold of 2023-11-14 22:13:20 UTC ended at 2023-11-14 22:14:22 UTC" in said
    assert "hold" in said.partition("UTC ended")[2]
    assert world.writes.count == writes + 1, "the clock alone"

    moves.hold(context, "m1")
    world.passing(59_000)
    moves.apply(context, "m1")
    gone = moves.go(context, "m1")
    assert (gone.step, gone.attempt > 1) == ("gone", True)
    assert going_to(world, "P") == going_to(world, "B") == {("B", "go")}


def test_a_hold_ends_with_its_time_limit_however_often_it_is_renewed(world: World) -> None:
    context = planned(world, replace(REQUEST, wait_seconds=100))
    moves.hold(context, "m1")
    for _ in range(4):
        assert not moves.wait_status(context, "m1").timed_out
        world.passing(25_000)
    world.passing(1)

    assert moves.wait_status(context, "m1").timed_out
    with pytest.raises(ConflictError, match="ended at 2023-11-14 22:15:00 UTC: hold it again"):
        moves.go(context, "m1")


def test_an_unplanned_move_is_decided_without_a_lease(config: Config) -> None:
    disaster = Disaster(busy_world(config))
    disaster.planned()
    disaster.through("hold")
    disaster.world.passing(6 * 3_600_000)
    disaster.through("apply", "go")

    assert going_to(disaster.world, "B") == {("B", "go")}


# ----- more than one move


def two_topics(config: Config) -> World:
    world = busy_world(config)
    for alias, other in (("P", "B"), ("B", "P")):
        world.clusters[alias].add_topic("Payments-eu")
        world.clusters[alias].add_topic(f"{other}.Payments-eu")
    world.p.produce("Payments-eu", records=10)
    for source, target in (("P", "B"), ("B", "P")):
        world.copy(source, target, topic="Payments-eu")
    world.p.commit("eu", {TopicPartition("Payments-eu", 0): 4})
    return world


@pytest.mark.parametrize("number", range(1, WRITES_OF_A_MOVE + 1))
def test_moves_of_different_groups_run_at_once(config: Config, number: int) -> None:
    world = two_topics(config)

    def other() -> None:
        context = world.context()
        moves.plan(context, MoveRequest("failover", "P", "B", ("Payments-eu",), ("eu",)), "m2")
        moves.hold(context, "m2")
        world.passing()
        moves.apply(context, "m2")
        moves.go(context, "m2")

    world.writes.before[number] = other
    run_through(world)

    assert going_to(world, "P") == going_to(world, "B") == {("B", "go")}
    assert world.routes("P").keys() == {
        "group:near", "group:far", "group:eu", "topic:Payments", "topic:Payments-eu"
    }  # fmt: skip
    # It has read nothing of the original on B: the start of its log is exact.
    assert world.offsets("B", "eu") == {"P.Payments-eu-0": 4, "Payments-eu-0": 0}


@pytest.mark.parametrize("number", range(1, 17))
def test_moves_between_different_pairs_of_clusters_run_at_once(tmp_path: Path, number: int) -> None:
    world = World(config_in(tmp_path, THREE_CLUSTERS), 1, ("P", "B", "C"), ("Payments", "Refunds"))
    for topic, target, group in (("Payments", "B", "near"), ("Refunds", "C", "audit")):
        world.p.produce(topic, records=10)
        world.copy("P", target, topic=topic)
        world.copy(target, "P", topic=topic)
        world.p.commit(group, {TopicPartition(topic, 0): 7})

    def run(target: str, request: MoveRequest, move_id: str) -> None:
        context = world.context("P", target)
        moves.plan(context, request, move_id)
        moves.hold(context, move_id)
        world.passing()
        moves.apply(context, move_id)
        moves.go(context, move_id)

    audit = MoveRequest("failover", "P", "C", ("Refunds",), ("audit",))
    world.writes.before[number] = lambda: run("C", audit, "m2")
    run("B", MoveRequest("failover", "P", "B", ("Payments",), ("near",)), "m1")
    assert not world.writes.before, "the other move never began"

    assert {s: r.cluster for s, r in world.routes("P").items()} == {
        "topic:Payments": "B", "group:near": "B", "topic:Refunds": "C", "group:audit": "C"
    }  # fmt: skip
    assert world.routes("B").keys() == {"topic:Payments", "group:near"}
    assert world.routes("C").keys() == {"topic:Refunds", "group:audit"}


def test_two_moves_that_hold_the_same_clients_at_once_do_not_both_hold_them(world: World) -> None:
    context = planned(world)
    moves.plan(context, REQUEST, "m2")
    # The other one begins after this one has planned again, before its first route.
    world.writes.before[world.writes.count + 1] = lambda: moves.hold(world.context(), "m2")

    with pytest.raises(ConflictError, match="is held by move m2: finish or release that one"):
        moves.hold(context, "m1")
    assert {route.move_id for route in world.routes("P").values()} == {"m2"}


# ----- static members


def test_static_members_are_removed_once_they_had_time_to_commit(world: World) -> None:
    world.p.join("near", "steady", instance_id="i-1")
    context = planned(world)
    moves.hold(context, "m1")
    world.obey("near", "far")
    moves.wait_status(context, "m1")
    assert world.p.groups(["near"])["near"].instance_ids == ("i-1",)
    world.passing(5_000)
    moves.wait_status(context, "m1")

    assert world.p.groups(["near"])["near"].members == ()
    world.p.join("near", "steady", instance_id="i-1")  # it does not know of moves
    assert "near is still active on P" in moves.wait_status(context, "m1").blocking[0]
    assert world.p.groups(["near"])["near"].instance_ids == ("i-1",)


def say_held(world: World, client: str) -> None:
    """Acknowledge the hold as a client of the group ``near``."""
    route: Route = world.routes("P")["group:near"]
    ack = Ack("group:near", client, route.generation, "held", "P", world.clock())
    world.p.compacted_topic(internal_topics.CLIENTS).write({ack.key(): ack.value()})


def test_a_static_member_that_says_it_has_left_is_removed_at_once(world: World) -> None:
    world.p.join("near", "steady", instance_id="i-1")
    context = planned(world)
    moves.hold(context, "m1")
    world.obey("near", "far")
    say_held(world, "steady")
    moves.wait_status(context, "m1")

    assert world.p.groups(["near"])["near"].members == ()


def test_what_others_say_who_have_left_takes_no_time_from_a_static_member(world: World) -> None:
    """One of two members follows routes: it commits, leaves and says so at once."""
    world.p.join("near", "steady", instance_id="i-1")
    context = planned(world)
    moves.hold(context, "m1")
    world.obey("near", "far")
    say_held(world, "app")

    moves.wait_status(context, "m1")
    assert world.p.groups(["near"])["near"].instance_ids == ("i-1",)
    world.passing(5_000)
    moves.wait_status(context, "m1")

    assert world.p.groups(["near"])["near"].members == ()


# ----- transactions over several topics


def test_topics_of_one_transaction_move_together_or_the_plan_says_how(config: Config) -> None:
    world = two_topics(config)
    world.p.produce_in("shop", "Payments", 0, 1)
    world.p.produce_in("shop", "Payments-eu", 0, 1)
    world.p.end_transaction("shop")
    world.report("P", "B")

    named = moves.plan(world.context(), REQUEST, dry_run=True)
    assert len(named.blocking) == 1
    assert named.blocking[0] == (
        "transactions on P write Payments with Payments-eu: move them together, add --topic "
        "Payments-eu"
    )
    everything = moves.plan(world.context(), MoveRequest("failover", "P", "B"), dry_run=True)
    assert everything.blocking == ()
    assert everything.topics == ("Payments", "Payments-eu")


def test_a_topic_of_a_transaction_that_is_not_replicated_is_named(world: World) -> None:
    world.p.add_topic("local")
    world.p.produce_in("shop", "Payments", 0, 1)
    world.p.produce_in("shop", "local", 0, 1)
    world.p.end_transaction("shop")
    world.report("P", "B")

    plan = moves.plan(world.context(), REQUEST, dry_run=True)
    assert plan.blocking == ()
    assert "transactions on P write Payments with local, not replicated by P->B" in str(
        plan.warnings
    )


def test_where_transactions_may_not_be_seen_the_plan_says_that_it_cannot_know(
    world: World,
) -> None:
    world.p.hide_transactions()

    plan = moves.plan(world.context(), REQUEST, dry_run=True)
    assert "are unknown: grant Read on topic __transaction_state" in str(plan.warnings)


@pytest.mark.parametrize(("frozen_s", "said"), [(40, False), (75, True)])
def test_a_decision_that_shows_after_its_lease_is_said_in_the_report(
    world: World, frozen_s: int, said: bool
) -> None:
    """The coordinator froze between the check of the lease and the commit."""
    context = ready(world)
    moves.go(context, "m1")
    world.passing(frozen_s * 1000)
    for group in ("near", "far"):
        world.start(group, "B", {"P.Payments": 101})
    moves.verify(context, "m1")
    world.passing(100_000)
    moves.verify(context, "m1")

    notes = moves.report(context, "m1").notes
    late = [note for note in notes if "first seen 15 s after the hold had lapsed" in note]
    assert bool(late) == said


@pytest.mark.parametrize(
    ("replicas", "others", "said"), [(1, 3, True), (3, 3, False), (1, 1, False)]
)
def test_a_plan_warns_of_a_log_of_transactions_that_one_broker_keeps(
    world: World, replicas: int, others: int, said: bool
) -> None:
    """A cluster of one broker has no choice."""
    world.b.create_topics(
        [
            TopicSpec("__transaction_state", 50, replicas, {}),
            TopicSpec("others", 1, others, {}),
        ]
    )
    warnings = moves.plan(world.context(), REQUEST, dry_run=True).warnings

    wanted = "topic __transaction_state of cluster B has one replica"
    assert any(warning.startswith(wanted) for warning in warnings) == said
