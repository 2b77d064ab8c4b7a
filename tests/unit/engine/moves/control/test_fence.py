"""fence = acl in memory: set once followers are held, lifted, and left behind by no crash."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import REQUEST, Killed, World, busy_world
from tests.unit.engine.moves.giving_up import Disaster

from srm.config.model import Config
from srm.domain.moves.announcements import Ack
from srm.domain.names import internal_topics
from srm.engine.moves import gate
from srm.engine.moves.context import MoveContext, ensure_topics
from srm.engine.moves.effects import lift_fence, lift_target, read_fences, set_fence
from srm.engine.moves.store import MoveStore
from srm.errors import AuthorizationError, ConflictError, GateClosedError, UnavailableError

FENCED = replace(REQUEST, fence="acl")
BACK = replace(REQUEST, operation="failback", source="B", target="P")


def held(world: World) -> MoveContext:
    context = world.context()
    moves.plan(context, FENCED, "m1")
    moves.hold(context, "m1")
    world.obey("near", "far")
    world.passing(2_000)
    return context


def gone(world: World) -> MoveContext:
    context = held(world)
    moves.wait_status(context, "m1")
    moves.wait_status(context, "m1")
    moves.apply(context, "m1")
    moves.go(context, "m1")
    return context


def held_back(world: World) -> MoveContext:
    """Hold the groups, which have joined on B, for the move back."""
    for group in ("near", "far"):
        world.b.join(group)
    world.copy("B", "P")
    back = world.context("B", "P")
    moves.plan(back, BACK, "m2")
    moves.hold(back, "m2")
    return back


def denied(world: World, alias: str = "P") -> bool:
    return bool(world.clusters[alias].write_denials(["Payments"]))


def recorded(world: World, alias: str = "P") -> dict[str, bool]:
    return {topic: fence.is_set for topic, fence in read_fences(world.clusters[alias]).items()}


def test_writes_are_denied_before_offsets_are_applied_and_after_go(world):
    context = held(world)
    assert not denied(world)
    with pytest.raises(GateClosedError, match="writes to Payments are not denied on P yet"):
        moves.apply(context, "m1")

    first = moves.wait_status(context, "m1")
    assert "writes to Payments are not denied on P yet" in first.blocking
    assert moves.wait_status(context, "m1").ready
    moves.apply(context, "m1")
    moves.go(context, "m1")

    assert recorded(world) == {"Payments": True}
    with pytest.raises(AuthorizationError):
        world.p.produce("Payments", records=1)
    world.b.produce("Payments", records=1)


def test_a_producer_that_follows_may_write_what_it_has_before_the_fence_is_set(world):
    context = world.context()
    said = Ack("topic:Payments", "app", 0, "resumed", "P", world.clock())
    moves.plan(context, FENCED, "m1")
    world.p.compacted_topic(internal_topics.CLIENTS).write({said.key(): said.value()})
    moves.hold(context, "m1")
    world.obey("near", "far")

    moves.wait_status(context, "m1")
    world.p.produce("Payments", records=1)
    flushed = replace(said, generation=1, state="held")
    world.p.compacted_topic(internal_topics.CLIENTS).write({flushed.key(): flushed.value()})
    moves.wait_status(context, "m1")

    assert denied(world)


def test_a_release_lifts_it(world):
    context = held(world)
    moves.wait_status(context, "m1")

    moves.release(context, "m1")

    assert (denied(world), recorded(world)) == (False, {"Payments": False})


def test_a_release_lifts_what_a_wait_next_to_it_has_set_again(world):
    """Whoever waits looks twice a second, and until the release is written it sees a hold."""
    context = held(world)
    moves.wait_status(context, "m1")
    looked: list[bool] = []

    def look() -> None:
        moves.wait_status(world.context(), "m1")
        looked.append(denied(world))

    world.writes.before[world.writes.count + 2] = look  # after the lifting, before the release

    assert moves.release(context, "m1").step == "released"

    assert looked == [True]
    assert (denied(world), recorded(world)) == (False, {"Payments": False})


def test_a_release_lifts_a_rule_that_came_after_the_lifting_of_its_record(world):
    """A wait beside it had written the record, and its look after the rule still saw a hold."""
    context = held(world)
    moves.wait_status(context, "m1")

    def late() -> None:
        world.p.deny_writes(["Payments"])
        world.passing(1)

    world.writes.before[world.writes.count + 2] = late  # after the lifting, before the release

    assert moves.release(context, "m1").step == "released"

    assert (denied(world), recorded(world)) == (False, {"Payments": False})


def test_a_move_back_lifts_it_before_anybody_is_sent_there(world):
    gone(world)
    seen: list[bool] = []

    context = held_back(world)
    world.obey("near", "far", alias="B")
    world.passing(2_000)
    moves.wait_status(context, "m2")
    moves.apply(context, "m2")
    assert denied(world)

    def watch() -> None:
        if world.routes("P")["topic:Payments"].cluster == "P":
            seen.append(denied(world))

    world.writes.watch = watch
    moves.go(context, "m2")

    assert seen
    assert not any(seen)
    assert recorded(world) == {"Payments": False}


def applied_back(world: World) -> MoveContext:
    """Return a move back that may go; P is still closed by the fence of the first move."""
    gone(world)
    back = held_back(world)
    world.obey("near", "far", alias="B")
    world.passing(2_000)
    moves.wait_status(back, "m2")
    moves.apply(back, "m2")
    return back


def with_rules_as_writes(world: World) -> None:
    """Let a process die around each change of a rule, too."""
    for cluster in (world.p, world.b):
        for name in ("allow_writes", "deny_writes"):
            real = getattr(cluster, name)

            def change(topics: Collection[str], real: Callable[..., None] = real) -> None:
                world.writes.around(lambda: real(topics))

            setattr(cluster, name, change)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("then", ["release", "go"])
def test_a_move_back_that_dies_anywhere_in_go_opens_its_target_only_with_the_decision(
    config: Config, then: str, after: bool
) -> None:
    opened = list[int]()
    for at in count(1):
        world = busy_world(config)
        back = applied_back(world)
        with_rules_as_writes(world)
        world.writes.count, world.writes.die_at = 0, (at, after)
        try:
            moves.go(back, "m2")
            break
        except Killed:
            world.writes.die_at = None
        back = world.context("B", "P")
        if MoveStore.read(back).progress("m2").is_decided:
            assert not denied(world), "clients are sent to an open cluster"
        elif not denied(world):
            opened.append(at)
        if then == "release" and not MoveStore.read(back).progress("m2").is_decided:
            moves.release(back, "m2")
            assert (denied(world), recorded(world)) == (True, {"Payments": True}), at
        else:
            moves.go(back, "m2")
            assert (denied(world), recorded(world)) == (False, {"Payments": False}), at
    assert opened, "it died between the rule and the decision"


@pytest.mark.parametrize("then", ["release", "go"])
def test_what_is_written_to_a_target_that_a_killed_go_has_opened_is_counted_or_read(
    world: World, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """By a producer without a route: the target is open until its move is run again."""
    back, allow = applied_back(world), world.p.allow_writes
    monkeypatch.setattr(world.p, "allow_writes", lambda topics: _die(True, allow, topics))
    with pytest.raises(Killed):
        moves.go(back, "m2")
    monkeypatch.setattr(world.p, "allow_writes", allow)
    first = world.p.produce("Payments", records=3)

    getattr(moves, then)(world.context("B", "P"), "m2")

    assert denied(world) == (then == "release")
    if then == "release":
        assert moves.watch_residue(world.context(), "m1").residue == {"Payments": 3}
    else:
        assert {world.offsets("P", group)["Payments-0"] <= first for group in ("near", "far")} == {
            True
        }


@pytest.mark.parametrize("end", ["lease", "release"])
def test_a_decision_that_is_refused_leaves_the_target_closed(world: World, end: str) -> None:
    back = applied_back(world)
    others = {
        "lease": lambda: world.passing(50_000),
        "release": lambda: moves.release(world.context("B", "P"), "m2"),
    }
    world.writes.before[world.writes.count + 4] = others[end]  # the decision

    with pytest.raises(GateClosedError):
        moves.go(back, "m2")

    assert (denied(world), recorded(world)) == (True, {"Payments": True})


def test_a_release_reopens_nothing_that_a_later_move_has_opened(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops before its rule, and others lead the clients back meanwhile."""
    back, deny = applied_back(world), world.p.deny_writes
    world.p.allow_writes(["Payments"])  # by a go that was killed

    def late(topics: Collection[str]) -> None:
        monkeypatch.setattr(world.p, "deny_writes", deny)
        moves.go(world.context("B", "P"), "m2")
        deny(topics)

    monkeypatch.setattr(world.p, "deny_writes", late)
    with pytest.raises(ConflictError, match="has already sent clients to P"):
        moves.release(back, "m2")

    assert (denied(world), recorded(world)) == (False, {"Payments": False})


def test_a_release_that_dies_while_another_process_decides_leaves_the_source_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has lifted the rule after the gate's look, and no later step of it sets the rule again."""
    context, look = held(world), gate.patient_look
    for _ in range(2):
        moves.wait_status(context, "m1")
    moves.apply(context, "m1")

    def look_then_release(*given: Any) -> Any:
        seen = look(*given)
        monkeypatch.setattr(world.p, "allow_writes", lambda topics: _die(True, allow, topics))
        with suppress(Killed):
            moves.release(world.context(), "m1")
        monkeypatch.setattr(world.p, "allow_writes", allow)
        return seen

    allow = world.p.allow_writes
    monkeypatch.setattr(gate, "patient_look", look_then_release)
    moves.go(context, "m1")

    assert (denied(world), recorded(world)) == (True, {"Payments": True})


def test_a_rule_that_somebody_else_has_set_stays(world):
    world.p.deny_writes(["Payments", "Refunds"])
    context = held(world)
    moves.wait_status(context, "m1")

    moves.release(context, "m1")

    assert denied(world)
    assert recorded(world) == {}


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_around_the_record_leaves_nothing_that_a_release_does_not_find(world, after):
    context = held(world)
    real, world.p.deny_writes = world.p.deny_writes, lambda topics: _die(after, real, topics)

    with pytest.raises(Killed):
        moves.wait_status(context, "m1")
    world.p.deny_writes = real
    assert denied(world) == after
    assert recorded(world) == {"Payments": True}
    moves.release(world.context(), "m1")

    assert (denied(world), recorded(world)) == (False, {"Payments": False})


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_while_it_is_lifted_is_finished_by_the_next_release(world, after):
    context = held(world)
    moves.wait_status(context, "m1")
    real, world.p.allow_writes = world.p.allow_writes, lambda topics: _die(after, real, topics)

    with pytest.raises(Killed):
        moves.release(context, "m1")
    world.p.allow_writes = real
    moves.release(world.context(), "m1")

    assert (denied(world), recorded(world)) == (False, {"Payments": False})


def test_who_sets_it_after_a_release_takes_it_away_again(world):
    context = held(world)
    real = world.p.deny_writes

    def late(topics) -> None:
        moves.release(world.context(), "m1")
        real(topics)

    world.p.deny_writes = late
    moves.wait_status(context, "m1")

    assert not denied(world)


def back_on_p(world: World) -> None:
    """Other processes finish m1 and move everybody back by m2."""
    context = world.context()
    for _ in range(4):
        world.passing()
        moves.wait_status(context, "m1")
    moves.apply(context, "m1")
    moves.go(context, "m1")
    for group in ("near", "far"):
        world.start(group, "B", {"P.Payments": 101})
    world.copy("B", "P")
    back = world.context("B", "P")
    moves.plan(back, BACK, "m2")
    moves.hold(back, "m2")
    world.obey("near", "far", alias="B")
    world.passing()
    moves.wait_status(back, "m2")
    moves.apply(back, "m2")
    moves.go(back, "m2")


@pytest.mark.parametrize("stalled_before", ["the record", "the rule"])
def test_a_process_that_wakes_up_after_the_failback_closes_no_topic_on_the_active_cluster(
    world, monkeypatch, stalled_before
):
    context = held(world)
    others, rules = [], []

    def sleep() -> None:
        if not others:
            others.append("at work")
            back_on_p(world)
            rules.clear()

    deny, open_writer = world.p.deny_writes, world.p.control_writer

    def late_rule(topics) -> None:
        if stalled_before == "the rule":
            sleep()
        rules.append(topics)
        deny(topics)

    def late_record(transactional_id):
        sleep()
        return open_writer(transactional_id)

    monkeypatch.setattr(world.p, "deny_writes", late_rule)
    if stalled_before == "the record":
        monkeypatch.setattr(world.p, "control_writer", late_record)
    moves.wait_status(context, "m1")

    assert others
    assert bool(rules) == (stalled_before == "the rule"), "no record, no rule"
    assert world.routes("P")["topic:Payments"].cluster == "P"
    assert (denied(world), any(recorded(world).values())) == (False, False)


def kill_after_a_late_rule(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill a process of m1 that sets its rule on P when all clients are back there."""
    context = held(world)
    deny = world.p.deny_writes

    def late(topics: Collection[str]) -> None:
        monkeypatch.setattr(world.p, "deny_writes", deny)
        back_on_p(world)
        deny(topics)
        raise Killed

    monkeypatch.setattr(world.p, "deny_writes", late)
    with pytest.raises(Killed):
        moves.wait_status(context, "m1")


@pytest.mark.parametrize("again", ["plan", "go", "verify", "release"])
def test_a_rule_of_a_killed_late_process_is_lifted_when_its_move_is_run_again(
    world, monkeypatch, again
):
    kill_after_a_late_rule(world, monkeypatch)
    assert denied(world)

    with suppress(ConflictError):
        if again == "plan":
            moves.plan(world.context(), FENCED, "m1")
        else:
            getattr(moves, again)(world.context(), "m1")

    assert not denied(world)


@pytest.mark.parametrize("days", [0, 3])
def test_a_rule_of_a_killed_late_process_is_recorded_when_its_move_holds_again(
    world: World, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """Taken for an ACL of others it would stay when the clients are moved back."""
    context, deny = held(world), world.p.deny_writes

    def late(topics: Collection[str]) -> None:
        monkeypatch.setattr(world.p, "deny_writes", deny)
        moves.release(world.context(), "m1")
        deny(topics)
        raise Killed

    monkeypatch.setattr(world.p, "deny_writes", late)
    with pytest.raises(Killed):
        moves.wait_status(context, "m1")
    assert (denied(world), recorded(world)) == (True, {"Payments": False})
    world.passing(days * 86_400_000)

    gone(world)

    assert (denied(world), recorded(world)) == (True, {"Payments": True})


def test_a_rule_that_a_later_move_relies_on_stays_when_the_killed_move_is_run_again(
    world, monkeypatch
):
    kill_after_a_late_rule(world, monkeypatch)
    later = world.context()
    for group in ("near", "far"):
        world.start(group, "P", {"Payments": 100})
    moves.plan(later, FENCED, "m3")
    moves.hold(later, "m3")
    world.obey("near", "far")
    for _ in range(4):
        world.passing()
        moves.wait_status(later, "m3")
    moves.apply(later, "m3")
    moves.go(later, "m3")
    assert denied(world)

    with suppress(ConflictError):
        moves.verify(world.context(), "m1")

    assert denied(world)


def test_a_late_process_lifts_its_rule_where_a_later_move_has_a_record_of_its_own(
    world, monkeypatch
):
    context = held(world)
    deny = world.p.deny_writes

    def late(topics) -> None:
        monkeypatch.setattr(world.p, "deny_writes", deny)
        back_on_p(world)
        again = world.context()
        for group in ("near", "far"):
            world.start(group, "P", {"Payments": 100})
        moves.plan(again, FENCED, "m3")
        moves.hold(again, "m3")
        world.obey("near", "far")
        world.passing(2_000)
        moves.wait_status(again, "m3")
        assert denied(world)
        moves.release(again, "m3")
        assert not denied(world)
        deny(topics)

    monkeypatch.setattr(world.p, "deny_writes", late)
    moves.wait_status(context, "m1")

    assert (denied(world), recorded(world)) == (False, {"Payments": False})


def test_a_late_go_leaves_the_cluster_closed_that_a_later_move_has_left(world, monkeypatch):
    """It has found a rule on its target, and the later move needs that when it goes on."""
    ensure_topics(world.context())
    set_fence(world.b, ["Payments"], "m0", 1)
    gone(world)
    for group in ("near", "far"):
        world.start(group, "B", {"P.Payments": 101})
    world.copy("B", "P")
    back, denials = world.context("B", "P"), world.b.write_denials

    def late(topics: Collection[str]) -> frozenset[str]:
        monkeypatch.setattr(world.b, "write_denials", denials)
        moves.plan(back, replace(BACK, fence="acl"), "m2")
        moves.hold(back, "m2")
        world.obey("near", "far", alias="B")
        world.passing(2_000)
        moves.wait_status(back, "m2")
        moves.apply(back, "m2")
        moves.go(back, "m2")
        return denials(topics)

    monkeypatch.setattr(world.b, "write_denials", late)
    plan, progress = MoveStore.read(world.context()).load("m1")
    lift_target(world.context(), plan, progress.attempt)

    assert world.routes("B")["topic:Payments"].cluster == "P"
    assert (denied(world, "B"), denied(world)) == (True, False)


def test_a_rule_that_a_late_process_sets_and_leaves_before_the_decision_is_lifted_after_it(world):
    back = applied_back(world)

    def watch() -> None:  # its process is killed right after it
        if recorded(world) == {"Payments": False} and world.routes("P")["topic:Payments"].beat:
            world.p.deny_writes(["Payments"])

    world.writes.watch = watch
    moves.go(back, "m2")

    assert not denied(world)


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("again", ["plan", "verify"])
def test_a_move_back_that_has_not_led_clients_back_opens_nothing(world, again, released):
    """The one before it is looked at again while it holds them, or after its release."""
    gone(world)
    back = held_back(world)
    if released:
        moves.release(back, "m2")

    with suppress(ConflictError):
        if again == "plan":
            moves.plan(world.context(), FENCED, "m1")
        else:
            moves.verify(world.context(), "m1")

    assert world.routes("P")["topic:Payments"].cluster == "B"
    assert (denied(world), recorded(world)) == (True, {"Payments": True})


def test_a_release_that_comes_after_the_decision_leaves_it_in_place(world):
    context = held(world)
    moves.wait_status(context, "m1")
    moves.wait_status(context, "m1")
    moves.apply(context, "m1")
    real = world.p.allow_writes

    def decided_meanwhile(topics) -> None:
        world.p.allow_writes = real
        moves.go(world.context(), "m1")
        real(topics)

    world.p.allow_writes = decided_meanwhile
    with pytest.raises(ConflictError, match="has already sent clients to B"):
        moves.release(context, "m1")

    assert denied(world)


def test_a_plan_that_cannot_be_fenced_is_blocked_in_one_line(world):
    world.p.take_authorizer_away()

    plan = moves.plan(world.context(), FENCED)

    assert plan.blocking == (
        "fence acl is not possible: the brokers have no authorizer; move without it (--fence none)",
    )
    assert not moves.plan(world.context(), REQUEST).blocking


@pytest.mark.parametrize("answers", [True, False])
def test_an_unplanned_move_fences_the_source_if_it_answers_and_goes_on_if_not(world, answers):
    """A first move finds no control topics there."""
    disaster = Disaster(world)
    if not answers:
        world.p.fail()
    context = replace(disaster.context, condemned=world.p)

    moves.plan(context, replace(FENCED, mode="unplanned"), "m1")
    moves.hold(context, "m1")
    moves.apply(context, "m1")
    moves.go(context, "m1")
    world.p.recover()

    assert denied(world) == answers
    assert world.routes("B")["topic:Payments"].cluster == "B"


def test_an_unplanned_move_lifts_what_an_earlier_one_has_fenced_on_its_target(world):
    disaster = Disaster(world)
    ensure_topics(world.context())
    set_fence(world.b, ["Payments"], "earlier", 1)

    disaster.planned()
    disaster.through("hold", "apply", "go")

    assert (denied(world, "B"), recorded(world, "B")) == (False, {"Payments": False})


def test_an_unplanned_move_that_dies_before_its_decision_and_is_released_opens_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    disaster, allow = Disaster(world), world.b.allow_writes
    ensure_topics(world.context())
    set_fence(world.b, ["Payments"], "earlier", 1)
    disaster.planned()
    disaster.through("hold", "apply")
    monkeypatch.setattr(world.b, "allow_writes", lambda topics: _die(True, allow, topics))

    with pytest.raises(Killed):
        disaster.through("go")
    assert not denied(world, "B")
    disaster.through("release")

    assert (denied(world, "B"), recorded(world, "B")) == (True, {"Payments": True})


def test_a_person_may_lift_what_stands_of_a_topic(world):
    ensure_topics(world.context())
    set_fence(world.p, ["Payments"], "m9", 1)

    assert lift_fence(world.p, 2, lambda fence: fence.topic == "Refunds") == ()
    assert lift_fence(world.p, 2, lambda fence: fence.topic == "Payments") == ("Payments",)
    assert lift_fence(world.p, 3) == ()
    world.p.deny_writes(["Payments", "Refunds"])  # by a process that was killed right after it
    assert lift_fence(world.p, 3) == ()
    assert lift_fence(world.p, 3, since_ms=0) == ("Payments",)
    assert not denied(world)
    assert world.p.write_denials(["Refunds"])


def test_a_release_goes_on_where_the_fence_cannot_be_lifted_and_says_how_it_can(world):
    context = held(world)
    moves.wait_status(context, "m1")
    real, world.p.allow_writes = world.p.allow_writes, _refuse

    with pytest.raises(
        UnavailableError, match="released, but writes may still be denied on P, 'sr"
    ):
        moves.release(context, "m1")
    assert world.routes("P")["topic:Payments"].state == "go"
    world.p.allow_writes = real
    moves.release(context, "m1")

    assert not denied(world)


def test_a_damaged_record_of_a_fence_stops_nobody(world):
    ensure_topics(world.context())
    world.b.compacted_topic(internal_topics.MOVES).write({b"fence:Other": b"{"})
    gone(world)

    assert world.routes("B")["topic:Payments"].cluster == "B"


def _refuse(_topics) -> None:
    raise AuthorizationError("Alter is missing")


def _die(after: bool, real, topics) -> None:
    if after:
        real(topics)
    raise Killed
