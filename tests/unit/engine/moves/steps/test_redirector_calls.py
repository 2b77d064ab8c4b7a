"""Redirectors that are called: when, in which order, once where they confirm, and after a crash."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import REQUEST, Killed, World, held
from tests.unit.engine.moves.giving_up import Disaster

from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import RedirectOrder, call_key
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import away_cluster
from srm.engine.moves import effects
from srm.engine.moves.context import MoveContext
from srm.engine.moves.store import MoveStore
from srm.engine.ports import CallResult
from srm.errors import ConflictError, SrmError, UnavailableError

EVERY = replace(REQUEST, redirect=("routing", "webhook", "command", "manual"))


@dataclass
class Told:
    """A redirector that keeps what it was told; ``fails`` are steps that it refuses."""

    name: str
    log: list[tuple[str, str]]
    orders: list[RedirectOrder] = field(default_factory=list)
    fails: set[str] = field(default_factory=set)
    during: Callable[[RedirectOrder], None] = lambda _order: None
    limit_s: float = 60.0

    def call(self, order: RedirectOrder, _cancelled: threading.Event) -> CallResult:
        self.log.append((self.name, order.step))
        self.orders.append(order)
        self.during(order)
        failed = order.step in self.fails
        return CallResult(not failed, f"{self.name} {'refuses' if failed else 'obeys'}")

    @property
    def steps(self) -> list[str]:
        return [order.step for order in self.orders]


class Redirected:
    """A world whose moves from P have a webhook and a command."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.log: list[tuple[str, str]] = []
        self.webhook, self.command = Told("webhook", self.log), Told("command", self.log)
        world.context = self._context  # type: ignore[method-assign]

    def _context(self, source: str = "P", target: str = "B") -> MoveContext:
        plain = World.context(self.world, source, target)
        callers = {"webhook": self.webhook, "command": self.command}
        return replace(
            plain,
            forward=replace(plain.forward, callers=callers),
            reverse=replace(plain.reverse, callers=callers),
        )

    def planned(self, request: MoveRequest = EVERY) -> MoveContext:
        context = self.world.context()
        moves.plan(context, request, "m1")
        return context

    def calls(self) -> dict[str, str]:
        progress = MoveStore.read(self.world.context()).progress("m1")
        return {key: call.state for key, call in progress.calls.items()}


@pytest.fixture
def redirected(world: World) -> Redirected:
    return Redirected(world)


def finish(world: World, context: MoveContext) -> None:
    world.obey("near", "far")
    world.passing(2_000)
    moves.wait_status(context, "m1")
    moves.apply(context, "m1")
    moves.go(context, "m1")


def test_each_is_told_of_each_step_once_and_in_order(redirected):
    context = redirected.planned()
    moves.hold(context, "m1")
    moves.hold(context, "m1")
    finish(redirected.world, context)
    moves.go(context, "m1")
    moves.verify(context, "m1")

    assert redirected.log == [
        ("webhook", "hold"),
        ("command", "hold"),
        ("webhook", "go"),
        ("command", "go"),
    ]
    hold, go = redirected.webhook.orders
    assert (hold.key, go.key) == ("m1/1/hold", "m1/1/go")
    assert hold.order < go.order
    assert (go.source.bootstrap_servers, go.target.bootstrap_servers) == ("p:9092", "b:9092")
    assert go.topics == ("Payments",)
    assert set(go.groups) == {"near", "far"}
    assert go.members == {"near": ("app@127.0.0.1",), "far": ("app@127.0.0.1",)}
    assert go.replicas == {"Payments": "P.Payments"}


def test_nobody_is_called_before_the_step_is_durable(redirected):
    seen: list[tuple[str, str, str]] = []

    def look(order: RedirectOrder) -> None:
        world = redirected.world
        routes = [world.routes(alias)["topic:Payments"] for alias in ("P", "B")]
        seen.append((order.step, *(f"{r.state} {r.cluster}" for r in routes)))

    redirected.webhook.during = look
    context = redirected.planned()
    moves.hold(context, "m1")
    finish(redirected.world, context)

    assert seen == [("hold", "hold P", "hold P"), ("go", "go B", "go B")]


def test_a_hold_that_one_refuses_stops_before_the_next_and_before_anything_moves(redirected):
    redirected.webhook.fails = {"hold"}
    context = redirected.planned()

    with pytest.raises(ConflictError, match="webhook refuses; nothing has moved"):
        moves.hold(context, "m1")
    redirected.world.obey("near", "far")
    redirected.world.passing(2_000)

    assert redirected.log == [("webhook", "hold")]
    assert "redirector webhook has not confirmed hold: webhook refuses" in (
        moves.wait_status(context, "m1").blocking
    )
    redirected.webhook.fails = set()
    moves.hold(context, "m1")
    assert moves.wait_status(context, "m1").ready
    assert redirected.log[1:] == [("webhook", "hold"), ("command", "hold")]


def test_a_whole_run_whose_hold_is_refused_releases_everybody(redirected):
    redirected.command.fails = {"hold"}
    context = redirected.planned()

    with pytest.raises(ConflictError, match="command refuses"):
        moves.carry_out(context, "m1")

    assert redirected.webhook.steps == redirected.command.steps == ["hold", "release"]
    assert MoveStore.read(context).progress("m1").step == "released"


def test_a_go_that_one_refuses_stands_and_is_called_again_until_it_is_confirmed(redirected):
    redirected.webhook.fails = {"go"}
    context = redirected.planned()
    moves.hold(context, "m1")
    finish(redirected.world, context)

    first = moves.verify(context, "m1")
    redirected.world.clock.advance(6_000)
    redirected.webhook.fails = set()
    again = moves.verify(context, "m1")

    assert redirected.world.routes("B")["group:near"].cluster == "B"
    assert "redirector webhook has not confirmed go: webhook refuses" in first.waiting
    assert not [line for line in again.waiting if "redirector" in line]
    assert redirected.webhook.steps == ["hold", "go", "go"]
    assert redirected.command.steps == ["hold", "go"]


def test_one_that_never_confirms_the_go_is_a_problem_of_the_report(redirected):
    redirected.command.fails = {"go"}
    context = redirected.planned()
    moves.hold(context, "m1")
    finish(redirected.world, context)

    problems = moves.report(context, "m1").problems

    assert "redirector command has not confirmed go: command refuses" in problems


def test_a_release_is_complete_when_all_have_confirmed_it_and_can_be_repeated(redirected):
    context = redirected.planned()
    moves.hold(context, "m1")
    redirected.webhook.fails = {"release"}

    with pytest.raises(UnavailableError, match="m1 is released, but redirector webhook has not"):
        moves.release(context, "m1")
    redirected.webhook.fails = set()
    moves.release(context, "m1")
    moves.release(context, "m1")

    assert redirected.world.routes("P")["topic:Payments"].state == "go"
    assert redirected.webhook.steps == ["hold", "release", "release"]
    assert redirected.command.steps == ["hold", "release"]


def test_a_new_attempt_calls_all_of_them_under_new_keys(redirected):
    context = redirected.planned()
    moves.hold(context, "m1")
    moves.release(context, "m1")
    moves.hold(context, "m1")

    orders = redirected.webhook.orders
    assert [order.key for order in orders] == ["m1/1/hold", "m1/1/release", "m1/2/hold"]
    assert set(redirected.calls()) == {"2/hold/webhook", "2/hold/command", "2/hold/manual"}
    assert [order.order for order in orders] == sorted(order.order for order in orders)


def test_a_call_that_lasts_until_after_a_release_is_followed_by_another_release(redirected):
    """The external side may have obeyed the late hold last."""
    context = redirected.planned()

    def release_meanwhile(order: RedirectOrder) -> None:
        if order.step == "hold":
            moves.release(redirected.world.context(), "m1")

    redirected.webhook.during = release_meanwhile
    moves.hold(context, "m1")

    assert redirected.webhook.steps == ["hold", "release", "release"]
    assert redirected.calls()[call_key(1, "release", "webhook")] == "done"


def test_a_hold_that_stalls_before_its_call_makes_none_after_a_release(redirected, monkeypatch):
    context, keep = redirected.planned(), effects._Redirector._keep
    released: list[bool] = []

    def stalled(of, attempt, step, state, said):
        found = (attempt, step, of.kind, state)
        if found == (1, "hold", "webhook", "calling") and not released:
            released.append(True)
            moves.release(redirected.world.context(), "m1")
        return keep(of, attempt, step, state, said)

    monkeypatch.setattr(effects._Redirector, "_keep", stalled)
    with suppress(SrmError):
        moves.hold(context, "m1")

    assert released
    assert "hold" not in redirected.webhook.steps


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, 16))
def test_a_hold_killed_at_any_write_is_finished_by_its_repetition(redirected, number, after):
    """At least once, under one key; what was confirmed and kept is not repeated."""
    world = redirected.world
    context = redirected.planned()
    world.writes.count, world.writes.die_at = 0, (number, after)
    try:
        moves.hold(context, "m1")
    except Killed:
        killed = True
    else:
        killed = False
    world.writes.die_at = None
    before = list(redirected.log)
    known = redirected.calls()

    moves.hold(redirected.world.context(), "m1")

    assert killed == (number <= 12), world.writes.count
    assert set(redirected.calls().values()) == {"done"}
    assert {order.key for order in redirected.webhook.orders} == {"m1/1/hold"}
    for name in ("webhook", "command"):
        repeated = redirected.log[len(before) :].count((name, "hold"))
        assert repeated == (known.get(call_key(1, "hold", name)) != "done")


def test_a_go_killed_after_its_call_makes_it_again_under_the_same_key(redirected):
    world, context = redirected.world, redirected.planned()
    moves.hold(context, "m1")

    def die_at_the_next_write(order: RedirectOrder) -> None:
        if order.step == "go":
            world.writes.die_at = (world.writes.count + 1, False)

    redirected.webhook.during = die_at_the_next_write
    with pytest.raises(Killed):
        finish(world, context)
    redirected.webhook.during, world.writes.die_at = lambda _order: None, None
    moves.go(world.context(), "m1")

    assert [order.key for order in redirected.webhook.orders[1:]] == ["m1/1/go"] * 2
    assert redirected.command.steps == ["hold", "go"]
    assert redirected.calls()[call_key(1, "go", "webhook")] == "done"


def test_after_the_decision_the_source_is_not_needed(redirected):
    world, context = redirected.world, redirected.planned()
    redirected.webhook.fails = {"go"}
    moves.hold(context, "m1")
    finish(world, context)
    world.p.fail()
    redirected.webhook.fails = set()

    gone = replace(context.forward, source=away_cluster("P"))
    moves.go(replace(context, forward=gone), "m1")

    assert redirected.webhook.steps == ["hold", "go", "go"]


def fail_back(redirected: Redirected, *groups: str) -> None:
    """Move everybody back by m2, or some groups, called with every step of it."""
    world, moved = redirected.world, groups or ("near", "far")
    for group in moved:
        world.start(group, "B", {"P.Payments": 101})
    world.copy("B", "P")
    context = world.context("B", "P")
    request = replace(EVERY, operation="failback", source="B", target="P", groups=groups)
    moves.plan(context, request, "m2")
    moves.hold(context, "m2")
    world.obey(*moved, alias="B")
    world.passing()
    moves.wait_status(context, "m2")
    moves.apply(context, "m2")
    moves.go(context, "m2")


def test_after_a_late_call_of_a_killed_process_the_later_move_is_called_again(
    redirected, monkeypatch
):
    context, keep = redirected.planned(), effects._Redirector._keep
    moves.hold(context, "m1")

    def kill(*_arguments: object) -> None:
        raise Killed

    def stall(order: RedirectOrder) -> None:
        redirected.webhook.during = lambda _order: None
        if order.key == "m1/1/go":
            fail_back(redirected)
            monkeypatch.setattr(effects._Redirector, "_keep", kill)

    redirected.webhook.during = stall
    with pytest.raises(Killed):
        finish(redirected.world, context)
    monkeypatch.setattr(effects._Redirector, "_keep", keep)

    moves.verify(redirected.world.context(), "m1")

    assert redirected.webhook.orders[-1].move_id == "m2"
    assert redirected.calls()[call_key(1, "go", "webhook")] == "superseded"


def test_a_go_that_was_not_confirmed_is_not_called_again_after_the_failback(redirected):
    redirected.webhook.fails = {"go"}
    context = redirected.planned()
    moves.hold(context, "m1")
    finish(redirected.world, context)
    redirected.webhook.fails = set()
    fail_back(redirected)
    called = len(redirected.webhook.orders)

    redirected.world.passing()
    waiting = moves.verify(context, "m1").waiting
    report = moves.report(context, "m1")

    assert len(redirected.webhook.orders) == called
    assert not [line for line in (*waiting, *report.problems) if "redirector" in line]
    states = {one.redirector: one.state for one in report.calls if one.step == "go"}
    assert states["webhook"] == "superseded"
    assert "redirector webhook was not called with go: superseded by move m2" in report.notes


def test_a_go_that_was_not_confirmed_stays_a_problem_while_some_of_its_clients_follow_it(
    redirected,
):
    """It is not called for them: a receiver ignores an order lower than that of the later move."""
    redirected.webhook.fails = {"go"}
    context = redirected.planned()
    moves.hold(context, "m1")
    finish(redirected.world, context)
    redirected.webhook.fails = set()
    fail_back(redirected, "near")
    called = len(redirected.webhook.orders)

    redirected.world.passing()
    moves.verify(context, "m1")
    problems = moves.report(context, "m1").problems

    assert len(redirected.webhook.orders) == called
    assert (
        "redirector webhook has not confirmed go: superseded by move m2, but for group:far: "
        "send those to B by hand"
    ) in problems


def test_a_go_that_ends_after_the_failback_is_followed_by_the_go_of_that(redirected):
    """A process was stopped within its call: the other side has obeyed it last."""
    context = redirected.planned()

    def stall(order: RedirectOrder) -> None:
        if (order.move_id, order.step) == ("m1", "go"):
            redirected.webhook.during = lambda _order: None
            fail_back(redirected)

    redirected.webhook.during = stall
    moves.hold(context, "m1")
    finish(redirected.world, context)

    called = [(order.move_id, order.step) for order in redirected.webhook.orders]
    assert called == [("m1", "hold"), ("m1", "go"), ("m2", "hold"), ("m2", "go"), ("m2", "go")]
    once = [("m1", "hold"), ("m2", "hold"), ("m2", "go")]
    assert [(one.move_id, one.step) for one in redirected.command.orders] == once


def test_a_late_call_is_followed_also_if_the_later_move_confirms_its_own_in_between(
    redirected, monkeypatch
):
    """The confirmation is of a call from before the late one."""
    context, keep = redirected.planned(), effects._Redirector._keep
    stalled: list[Callable[[], bool]] = []

    def slow(of, attempt, step, state, said):
        if (of.plan.move_id, step, of.kind) != ("m2", "go", "webhook"):
            return keep(of, attempt, step, state, said)
        if state == "done" and not stalled:
            stalled.append(lambda: keep(of, attempt, step, state, said))
            return True
        kept = keep(of, attempt, step, state, said)
        if stalled:
            stalled[0]()
        return kept

    def stall(order: RedirectOrder) -> None:
        if order.key == "m1/1/go":
            redirected.webhook.during = lambda _order: None
            fail_back(redirected)

    monkeypatch.setattr(effects._Redirector, "_keep", slow)
    redirected.webhook.during = stall
    moves.hold(context, "m1")
    finish(redirected.world, context)

    assert stalled
    called = [(order.move_id, order.step) for order in redirected.webhook.orders]
    assert called[-2:] == [("m2", "go"), ("m2", "go")]


def test_a_redirector_that_is_not_set_up_blocks_the_plan(world):
    plan = moves.plan(world.context(), replace(REQUEST, redirect=("routing", "webhook", "command")))

    assert plan.blocking == (
        (
            "redirector webhook is not configured; set P->B.failover.webhook.url and "
            "P->B.failover.webhook.secret (docs/redirect.md)"
        ),
        "redirector command is not configured; set P->B.failover.command (docs/redirect.md)",
    )


def test_without_a_wish_of_the_move_the_configured_list_counts(redirected):
    def configured(context: MoveContext) -> MoveContext:
        config = context.forward.config
        listed = replace(config.redirect, kinds=("routing", "command"))
        return replace(
            context, forward=replace(context.forward, config=replace(config, redirect=listed))
        )

    context = configured(redirected.world.context())

    assert moves.plan(context, REQUEST, "m1").redirect == ("routing", "command")
    assert moves.plan(context, replace(REQUEST, redirect=("routing",)), "m2").redirect == (
        "routing",
    )


def test_a_manual_move_says_who_is_still_there_and_goes_on_when_they_have_left(world):
    context = world.context()
    moves.plan(context, replace(REQUEST, redirect=("routing", "manual")), "m1")
    moves.hold(context, "m1")
    world.p.leave("far")
    world.passing(2_000)

    asks = moves.wait_status(context, "m1").asks
    world.p.leave("near")
    ready = moves.wait_status(context, "m1")
    moves.apply(context, "m1")
    moves.go(context, "m1")
    before = moves.verify(context, "m1").asks
    world.b.join("near")
    after = moves.verify(context, "m1").asks

    assert asks == (
        (
            "stop client app of group near on host 127.0.0.1, which reads P; prepare "
            "bootstrap.servers=b:9092 (cluster B), do not start there yet"
        ),
    )
    assert (ready.ready, ready.asks) == (True, ())
    assert before == (
        "start group far (app@127.0.0.1) with bootstrap.servers=b:9092 (cluster B)",
        "start group near (app@127.0.0.1) with bootstrap.servers=b:9092 (cluster B)",
    )
    assert after == ("start group far (app@127.0.0.1) with bootstrap.servers=b:9092 (cluster B)",)


def test_a_manual_move_starts_no_group_that_had_no_members(world):
    """Hundreds of resting groups would hide the one that has to be started."""
    world.p.commit("resting", {TopicPartition("Payments", 0): 5})
    context, groups = world.context(), ("near", "resting")
    moves.plan(context, replace(REQUEST, groups=groups, redirect=("routing", "manual")), "m1")
    moves.hold(context, "m1")
    world.p.leave("near")
    world.passing(2_000)
    moves.wait_status(context, "m1")
    moves.apply(context, "m1")
    moves.go(context, "m1")

    [ask] = moves.verify(context, "m1").asks

    assert "start group near" in ask


def test_who_is_redirected_by_routing_alone_costs_no_write(world):
    writes = world.writes.count
    held(world)
    alone = world.writes.count - writes

    assert MoveStore.read(world.context()).progress("m1").calls == {}
    assert alone == held_writes()


def held_writes() -> int:
    """Two plans, two holds, and what the clock says."""
    return 5


def test_an_unplanned_move_calls_nobody_but_at_go(world):
    disaster, log = Disaster(world), []
    webhook = Told("webhook", log, fails={"hold"})
    whole = disaster.context
    context = replace(whole, forward=replace(whole.forward, callers={"webhook": webhook}))
    world.p.fail()

    moves.plan(context, replace(EVERY, mode="unplanned", redirect=("routing", "webhook")), "m1")
    moves.carry_out(context, "m1", poll_seconds=0.001)

    [order] = webhook.orders
    assert (order.step, order.mode, order.source.bootstrap_servers) == ("go", "unplanned", "p:9092")


def test_an_unplanned_move_that_is_released_frees_whom_a_planned_one_had_held(
    redirected: Redirected, world: World
) -> None:
    """It has taken the hold over: the later release of that move is superseded and calls none."""
    disaster = Disaster(world)
    request = replace(EVERY, redirect=("routing", "webhook"))
    moves.hold(redirected.planned(request), "m1")
    whole = disaster.context
    callers = {"webhook": redirected.webhook}
    unplanned = replace(whole, forward=replace(whole.forward, callers=callers))
    moves.plan(unplanned, replace(request, mode="unplanned"), "m2")
    moves.hold(unplanned, "m2")

    moves.release(unplanned, "m2")
    moves.release(world.context(), "m1")

    assert redirected.webhook.steps == ["hold", "release"]
    first, last = redirected.webhook.orders
    assert (last.move_id, last.order > first.order) == ("m2", True)


def test_an_unplanned_move_that_was_released_before_it_held_calls_nobody(world: World) -> None:
    disaster, webhook = Disaster(world), Told("webhook", [])
    whole = disaster.context
    context = replace(whole, forward=replace(whole.forward, callers={"webhook": webhook}))
    moves.plan(context, replace(EVERY, mode="unplanned", redirect=("routing", "webhook")), "m1")

    assert moves.release(context, "m1").step == "released"

    assert webhook.steps == []


def test_an_unplanned_move_is_not_kept_waiting_by_a_redirector_that_is_not_set_up(world):
    disaster = Disaster(world)

    plan = disaster.planned(redirect=("routing", "command"))

    assert not plan.blocking
    assert [line for line in plan.warnings if "redirector command is not configured" in line]


def test_a_redirector_is_called_in_the_context_of_its_step(redirected: Redirected) -> None:
    """The span of the step is in it, which the redirector passes on."""
    span = ContextVar("span", default="")
    seen = []
    redirected.webhook.during = lambda _order: seen.append(span.get())
    context = redirected.planned()

    span.set("move.hold")
    moves.hold(context, "m1")

    assert seen == ["move.hold"]
