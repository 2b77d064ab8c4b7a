"""A whole move by one call: what ends it before go releases the hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event

import pytest
from rich.console import Console
from tests import moves
from tests.unit.engine.moves.control.moving import REQUEST, WRITES_OF_A_MOVE, World, held

from srm.cli.moves.failover import move_view
from srm.domain.moves.report import MoveReport
from srm.domain.moves.request import MoveRequest
from srm.domain.names.internal_topics import MOVES
from srm.engine.moves.steps import RunEvent, offer_way_out
from srm.engine.moves.store import MoveStore
from srm.errors import ConflictError, GateClosedError, UnavailableError
from srm.pages.moves import plan_view, report_view


class Clients:
    """Obeys a hold, and a go, when the move looks; time passes with each look."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.steps: list[str] = []
        self.obedient = True
        self.seen: list[RunEvent] = []

    def __call__(self, event: RunEvent) -> None:
        self.seen.append(event)
        if event.step not in self.steps:
            self.steps.append(event.step)
        self.world.passing(1_000)
        if event.step == "wait" and self.obedient:
            self.world.obey("near", "far")
        if event.step == "verify":
            self.world.start("near", "B", {})
            self.world.start("far", "B", {})


def run(world: World, clients: Clients, request: MoveRequest = REQUEST) -> MoveReport:
    context = world.context()
    moves.plan(context, request, "m1")
    return moves.carry_out(context, "m1", clients, poll_seconds=0.001)


def states(world: World) -> set[tuple[str, str]]:
    return {(r.cluster, r.state) for r in world.routes("P").values()}


def test_a_move_runs_from_hold_to_report(world: World) -> None:
    clients = Clients(world)
    report = run(world, clients)

    assert report.ok, report.problems
    assert clients.steps == ["hold", "wait", "apply", "go", "verify", "report"]
    assert states(world) == {("B", "go")}


def test_a_move_that_somebody_else_releases_ends_at_once_and_says_so(world: World) -> None:
    clients = Clients(world)
    clients.obedient = False

    def show(event: RunEvent) -> None:
        clients(event)
        if event.step == "wait":
            moves.release(world.context(), "m1", "somebody changed his mind")

    moves.plan(world.context(), REQUEST, "m1")
    with pytest.raises(ConflictError, match="m1 was released, clients stay on P"):
        moves.carry_out(world.context(), "m1", show, poll_seconds=0.001)

    found = MoveStore.read(world.context()).progress("m1")
    assert (found.step, found.reason) == ("released", "somebody changed his mind")
    assert [event.step for event in clients.seen].count("wait") == 1


def test_a_move_whose_documents_need_several_records_runs_as_any_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans, progress and reports of thousands of groups are larger than a broker takes."""
    monkeypatch.setattr("srm.domain.text.documents._LARGEST", 200)
    assert run(world, Clients(world)).ok

    rows = [one.compacted_topic(MOVES).read() for one in (world.p, world.b)]
    documents = [len(v) for found in rows for k, v in found.items() if not k.startswith(b"wait:")]
    assert max(documents) <= 200


@pytest.mark.parametrize("number", range(3, WRITES_OF_A_MOVE))
def test_two_runs_of_one_move_both_end_well(world: World, number: int) -> None:
    """The second passes the first, which stalls at one of its writes."""
    clients, other = Clients(world), Clients(world)
    moves.plan(world.context(), REQUEST, "m1")

    def overtake() -> None:
        other.world.obey("near", "far")
        moves.carry_out(world.context(), "m1", other, poll_seconds=0.001)

    world.writes.before[world.writes.count + number] = overtake
    assert moves.carry_out(world.context(), "m1", clients, poll_seconds=0.001).ok
    assert states(world) == {("B", "go")}


def test_each_step_is_done_inside_of_what_the_caller_puts_around_it(world: World) -> None:
    clients, told = Clients(world), list[str]()

    @contextmanager
    def around(step: str) -> Iterator[None]:
        told.append(f"{step} begins")
        yield
        assert clients.steps[-1] == step, "it is shown by now"
        told.append(f"{step} ends")

    context = world.context()
    moves.plan(context, REQUEST, "m1")
    moves.carry_out(context, "m1", clients, poll_seconds=0.001, around=around)

    steps = ("hold", "wait", "apply", "go", "verify", "report")
    assert told == [f"{step} {word}" for step in steps for word in ("begins", "ends")]


def test_a_time_out_releases_the_hold_and_says_what_was_waited_for(world: World) -> None:
    clients = Clients(world)
    clients.obedient = False

    with pytest.raises(GateClosedError, match=r"clients stay on P: .*far is still active on P"):
        run(world, clients, replace(REQUEST, wait_seconds=5))
    assert states(world) == {("P", "go")}


def test_a_cluster_that_hangs_does_not_hold_clients_longer_than_the_time_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen broker kept the last look for half a minute, and the clients in the hold."""
    thaw = Event()
    monkeypatch.setattr("srm.engine.moves.steps.wait_status", lambda *_: thaw.wait(60))
    began = time.monotonic()

    with pytest.raises(GateClosedError, match="the last look has not ended"):
        run(world, Clients(world), replace(REQUEST, wait_seconds=1))

    thaw.set()
    assert time.monotonic() - began < 30
    assert states(world) == {("P", "go")}


@pytest.mark.parametrize("step", ["hold", "wait", "apply", "go"])
def test_an_interruption_before_go_releases_the_hold(world: World, step: str) -> None:
    clients = Clients(world)

    def interrupt(event: RunEvent) -> None:
        clients(event)
        if event.step == step:
            raise KeyboardInterrupt

    context = world.context()
    moves.plan(context, REQUEST, "m1")
    with pytest.raises(KeyboardInterrupt):
        moves.carry_out(context, "m1", interrupt, poll_seconds=0.001)
    assert states(world) <= {("P", "go")}


def test_an_interruption_after_go_leaves_clients_on_the_target(world: World) -> None:
    clients = Clients(world)

    def interrupt(event: RunEvent) -> None:
        if event.step == "verify":
            raise KeyboardInterrupt
        clients(event)

    context = world.context()
    moves.plan(context, REQUEST, "m1")
    with pytest.raises(KeyboardInterrupt):
        moves.carry_out(context, "m1", interrupt, poll_seconds=0.001)
    assert states(world) == {("B", "go")}
    assert moves.carry_out(context, "m1", clients, poll_seconds=0.001).ok


def test_a_cluster_that_is_away_for_a_moment_only_delays(world: World) -> None:
    clients = Clients(world)

    def outage(event: RunEvent) -> None:
        clients(event)
        if event.step == "hold":
            return
        if event.step == "wait" and len(clients.seen) == 2:
            wait_status = world.b.topics
            world.b.topics = lambda: recovering(world, wait_status)

    assert run(world, outage).ok


def run_without(world: World, die: Callable[[], None], troubles: list[str] | None = None) -> None:
    """Run a move during which a cluster dies under the hold; ``troubles`` takes what is shown."""
    clients, found = Clients(world), troubles if troubles is not None else []

    def show(event: RunEvent) -> None:
        found.extend(filter(None, [event.trouble]))
        clients(event)
        if event.step == "wait":
            die()

    run(world, show, replace(REQUEST, wait_seconds=1))


def test_a_source_that_dies_under_a_hold_ends_with_the_way_out(world: World) -> None:
    troubles = list[str]()
    with pytest.raises(UnavailableError) as raised:
        run_without(world, lambda: setattr(world.p, "topics", died), troubles)
    assert raised.value.what == "cluster P does not answer"
    assert raised.value.action == (
        "if P is lost, move with mode unplanned: srm failover run --mode unplanned --source P "
        "--target B --topic Payments --group near --group far --timeout 1"
    )
    assert {*troubles} == {"cluster P does not answer"}


def test_the_way_out_follows_what_the_error_itself_advises(world: World) -> None:
    def refused() -> object:
        raise UnavailableError("cluster P does not answer", "start its brokers")

    with pytest.raises(UnavailableError) as raised:
        run_without(world, lambda: setattr(world.p, "topics", refused))
    assert raised.value.what == "cluster P does not answer"
    assert raised.value.action.startswith("start its brokers; if P is lost, move with mode")


def test_a_step_of_its_own_names_the_way_out_too(world: World) -> None:
    context = held(world)
    world.p.fail()

    with pytest.raises(UnavailableError, match="if P is lost"), offer_way_out(context, "m1"):
        moves.wait_status(context, "m1")


def test_without_both_clusters_no_unplanned_move_is_suggested(world: World) -> None:
    def die() -> None:
        world.p.fail()
        world.b.fail()

    with pytest.raises(UnavailableError) as raised:
        run_without(world, die)
    assert "if P is lost" not in str(raised.value)


def run_with_an_outage(world: World, looks: int) -> MoveReport:
    """Run a move; its target does not answer the first looks at the groups after go."""
    clients, groups, left = Clients(world), world.b.groups, [looks]

    def outage(names: list[str]) -> object:
        left[0] -= 1
        return groups(names) if left[0] < 0 else died()

    def show(event: RunEvent) -> None:
        clients(event)
        if event.step == "verify":
            world.b.groups = outage

    return run(world, show, replace(REQUEST, resume_seconds=1))


def test_a_target_that_is_away_while_its_groups_start_only_delays(world: World) -> None:
    assert run_with_an_outage(world, looks=3).ok


def test_a_target_that_stays_away_after_go_ends_with_where_clients_are(world: World) -> None:
    with pytest.raises(UnavailableError) as raised:
        run_with_an_outage(world, looks=1_000_000)
    assert raised.value.action == (
        "clients have been sent to B; 'srm failover run --move-id m1 --source P --target B' "
        "verifies and reports the move"
    )


def test_a_release_without_the_target_does_not_say_that_the_move_continues(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UnavailableError) as raised:
        run_without(world, world.b.fail)
    assert "if P is lost" not in str(raised.value), "it is B that does not answer"

    assert not [text for text in caplog.messages if "continues" in text], caplog.text
    assert "cluster B is left as it is: " in caplog.text


def died() -> object:
    raise UnavailableError("cluster P does not answer")


def recovering(world: World, topics: object) -> object:
    world.b.topics = topics
    raise UnavailableError("cluster B does not answer")


@pytest.mark.parametrize("step", ["apply", "go"])
def test_a_record_that_comes_between_two_steps_is_waited_for(world: World, step: str) -> None:
    """Seen with a writer of one record in two seconds: the move gave up and released."""
    clients = Clients(world)
    late = [step]

    def show(event: RunEvent) -> None:
        clients(event)
        if event.step in late:
            late.remove(event.step)
            world.p.produce("Payments", records=1)
        elif event.step == "wait":
            world.copy("P", "B")

    context = world.context()
    moves.plan(context, REQUEST, "m1")
    report = moves.carry_out(context, "m1", show, poll_seconds=0.001)

    assert not late
    assert report.ok, report.problems
    assert states(world) == {("B", "go")}


def test_apply_and_go_in_one_call_wait_for_a_late_record_too(world: World) -> None:
    context = held(world)
    moves.wait_status(context, "m1")
    world.p.produce("Payments", records=1)
    world.copy("P", "B")
    world.writes.watch = lambda: world.passing(500)

    assert moves.apply_and_go(context, "m1").step == "gone"
    assert states(world) == {("B", "go")}


def test_a_blocked_move_touches_nobody(world: World) -> None:
    world.b.join("far", "early")

    with pytest.raises(ConflictError, match="active on B"):
        run(world, Clients(world))
    assert states(world) == set()


def test_plan_progress_and_report_are_shown_in_words(world: World) -> None:
    clients = Clients(world)
    world.p.produce("Payments")
    world.report("P", "B")
    console = Console(record=True, width=140)
    plan = moves.plan(world.context(), REQUEST, "m1")
    console.print(plan_view(plan))
    world.copy("P", "B")
    console.print(report_view(run(world, clients)))
    for event in clients.seen:
        console.print(move_view(plan, event))

    text = console.export_text()
    assert "warning: the move will wait: replication of Payments from P is 1 record behind" in text
    assert "failover P->B: clean" in text
    assert "RPO 0 records" in text
    assert "waits: group far is still active on P" in text
    assert "waits: group far has no members on B yet" in text
