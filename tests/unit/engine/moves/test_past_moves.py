"""A step reads and decodes what its own move has; a move that has ended keeps report and line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import World, busy_world, config_in
from tests.unit.engine.moves.reporting.test_evidence import APPROVAL, finished, signing
from tests.unit.engine.moves.test_gone import gone

from srm.domain.moves.line import MoveLine
from srm.domain.moves.plan import GroupPlan, MovePlan, PartitionMove
from srm.domain.moves.progress import MoveProgress
from srm.domain.moves.report import MoveReport
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.revisions import KeptReport
from srm.domain.names import internal_topics
from srm.engine.moves.attempt import Attempt
from srm.engine.moves.registers import level, transact
from srm.engine.moves.store import MoveStore
from srm.engine.moves.tables import ControlChange
from srm.engine.moves.verification import keep_report
from srm.errors import ConflictError

MOVES = internal_topics.MOVES
REQUEST = MoveRequest("failover", "P", "B", ("Payments",), ("near", "far"))
_DAY_MS = 24 * 3_600_000


def past(number: int, at_ms: int) -> ControlChange:
    """A move of many groups that was carried out and reported."""
    position = PartitionMove("Payments", 0, "P.Payments", "forward", "translated", 10, 5, resume=20)
    rows = tuple(GroupPlan(f"group-{one}", (), (position,)) for one in range(100))
    request = MoveRequest("failover", "P", "B")
    plan = MovePlan(f"m-{number}", at_ms, request, ("Payments",), rows, (), {})
    homes = dict.fromkeys(plan.subjects, ("P",))
    at = MoveProgress(plan.move_id, 9, "reported", 1, times_ms={"gone": at_ms}, homes=homes)
    documents = {f"plan:{plan.move_id}": plan.value()}
    return ControlChange(Attempt(plan, at).go(at_ms), (at,), documents)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a record of each kind was decoded."""
    counts: Counter[str] = Counter()

    def counting(of: type, decode: Callable[[bytes], object]) -> Callable[[bytes], object]:
        def count(value: bytes) -> object:
            counts[of.__name__] += 1
            return decode(value)

        return count

    for of in (MovePlan, MoveProgress, KeptReport):
        monkeypatch.setattr(of, "decode", counting(of, of.decode))  # type: ignore[attr-defined]
    return counts


def keys_of(world: World, alias: str) -> set[bytes]:
    found = world.clusters[alias].compacted_topic(MOVES).read()
    return {key for key in found if not key.startswith(b"fence:")}


def add_past(world: World, count: int, *sides: str) -> None:
    for number in range(count):
        for topic, records in past(number, world.clock()).records().items():
            for alias in sides:
                world.clusters[alias].compacted_topic(topic).write(records)


@pytest.mark.parametrize("count", [1, 12])
def test_an_opening_decodes_no_plan_of_a_past_move(
    world: World, decoded: Counter[str], count: int
) -> None:
    context = world.context()
    moves.plan(context, REQUEST, "m1")
    add_past(world, count, "P", "B")
    decoded.clear()

    transact(context, "a step", lambda registers: registers.store.progress("m1"))
    MoveStore.read(context).lines()

    assert decoded == {}


def test_a_whole_move_decodes_as_much_after_ten_moves_as_after_one(
    tmp_path: Path, decoded: Counter[str]
) -> None:
    made = []
    for count in (1, 10):
        world = busy_world(config_in(tmp_path))
        moves.plan(world.context(), REQUEST, "m1")
        add_past(world, count, "P", "B")
        decoded.clear()
        finished(world)
        made.append(dict(decoded))

    assert made[1] == made[0]


def test_a_returned_cluster_gets_each_past_move_and_then_decodes_none(
    world: World, decoded: Counter[str]
) -> None:
    context = world.context()
    moves.plan(context, REQUEST, "m1")
    add_past(world, 3, "B")

    level(context)
    assert keys_of(world, "P") == keys_of(world, "B")
    decoded.clear()
    level(context)

    assert decoded == {}


def test_a_move_whose_residue_is_over_keeps_its_report_and_its_line(world: World) -> None:
    context = finished(world)
    world.passing(400_000)

    report = moves.watch_residue(context, "m1")

    assert report.residue_over
    for alias in ("P", "B"):
        assert keys_of(world, alias) == {b"report:m1", b"line:m1"}
    assert moves.watch_residue(context, "m1") == report == moves.report(context, "m1")
    assert moves.kept_report(context, "m1").report == report
    [line] = MoveStore.read(context).lines()
    assert (line.ended, line.progress.step, line.groups) == (True, "reported", "far, near")


def test_a_second_watch_that_ends_a_move_keeps_what_the_first_has_reported(world: World) -> None:
    """Both have read it before its end; after that its approvals and accepted rows are gone."""
    context = finished(world)
    moves.approve(context, "m1", APPROVAL)
    plan, progress = MoveStore.read(context).load("m1")
    world.passing(400_000)
    ended: list[MoveReport] = []
    world.writes.before[world.writes.count + 1] = lambda: ended.append(
        moves.watch_residue(signing(world), "m1")
    )

    late = keep_report(context, plan, progress.noting(residue_over=True))

    assert late == ended[0] == moves.kept_report(context, "m1").report
    assert late.approvals == (APPROVAL,)


def test_a_damaged_plan_of_a_past_move_stops_no_step_of_others(world: World) -> None:
    """The source missed that move, so each step copies its records there."""
    context = world.context()
    moves.plan(context, REQUEST, "m1")
    add_past(world, 1, "B")
    world.b.compacted_topic(MOVES).write({b"plan:m-0": b"{"})

    assert transact(context, "a step", lambda one: one.store.progress("m1").step) == "planned"
    assert b"progress:m-0" in keys_of(world, "P")


@pytest.mark.parametrize("alias", ["P", "B"])
def test_a_damaged_record_of_what_go_accepted_keeps_no_move_from_its_report(
    world: World, alias: str
) -> None:
    context = gone(world)
    world.clusters[alias].compacted_topic(MOVES).write({b"accepted:m1": b"{"})

    assert moves.report(context, "m1").groups.keys() == {"near", "far"}


def test_a_document_in_several_records_is_deleted_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srm.domain.text.documents._LARGEST", 200)
    context = finished(world)
    world.passing(400_000)

    moves.watch_residue(context, "m1")

    left = {key.rpartition(b":")[0].rpartition(b":")[2] for key in keys_of(world, "B")}
    assert left == {b"report", b"line"}


def test_no_step_of_an_ended_move_does_anything_but_say_so(world: World) -> None:
    context = finished(world)
    world.passing(400_000)
    moves.watch_residue(context, "m1")
    before = {alias: keys_of(world, alias) for alias in ("P", "B")}

    for step in (
        moves.hold,
        moves.wait_status,
        moves.apply,
        moves.go,
        moves.release,
        moves.verify,
        lambda context, move_id: moves.approve(context, move_id, APPROVAL),
        lambda context, move_id: moves.plan(context, REQUEST, move_id),
        moves.carry_out,
    ):
        with pytest.raises(ConflictError, match=r"m1 has ended: reported at .* report .*m1"):
            step(context, "m1")

    status = moves.status(context, "m1")
    assert (status.ready, {one.group for one in status.groups}) == (True, {"near", "far"})
    assert {alias: keys_of(world, alias) for alias in ("P", "B")} == before


def test_a_cluster_that_missed_the_end_of_a_move_does_not_bring_its_plan_back(
    world: World,
) -> None:
    context = finished(world)
    before = dict(world.p.compacted_topic(MOVES).read())
    world.passing(400_000)
    moves.watch_residue(context, "m1")
    after = dict(world.p.compacted_topic(MOVES).read())
    world.p.compacted_topic(MOVES).write(dict.fromkeys(after))
    world.p.compacted_topic(MOVES).write(before)

    level(context)

    for alias in ("P", "B"):
        assert keys_of(world, alias) == {b"report:m1", b"line:m1"}
    assert world.p.compacted_topic(MOVES).read() == world.b.compacted_topic(MOVES).read()


def test_a_move_that_has_held_no_client_ends_after_a_day(world: World) -> None:
    context = world.context()
    moves.plan(context, REQUEST, "m1")
    world.passing(_DAY_MS - 60_000)
    level(world.context())
    assert b"plan:m1" in keys_of(world, "B")

    world.passing(120_000)
    level(world.context())

    for alias in ("P", "B"):
        assert keys_of(world, alias) == {b"line:m1"}
    with pytest.raises(ConflictError, match=r"m1 has ended: .*; plan another one"):
        moves.hold(context, "m1")


def test_a_reported_move_that_no_look_has_watched_ends_after_a_day(world: World) -> None:
    context = finished(world)
    assert not moves.kept_report(context, "m1").report.residue_over
    world.passing(_DAY_MS + 400_000)

    level(world.context())

    assert keys_of(world, "P") == keys_of(world, "B") == {b"report:m1", b"line:m1"}
    assert moves.watch_residue(context, "m1").residue_over


def test_a_released_move_may_be_held_again_days_later(world: World) -> None:
    context = world.context()
    moves.plan(context, REQUEST, "m1")
    moves.hold(context, "m1")
    moves.release(context, "m1")
    world.passing(3 * _DAY_MS)
    level(world.context())

    assert moves.hold(world.context(), "m1").step == "held"


def test_a_move_that_holds_clients_or_was_decided_without_a_report_does_not_end(
    world: World,
) -> None:
    context = gone(world)
    world.passing(3 * _DAY_MS)

    level(world.context())

    assert {b"plan:m1", b"progress:m1"} <= keys_of(world, "B")
    assert moves.report(context, "m1").step == "reported"


def test_a_damaged_line_is_made_again_from_its_plan(world: World) -> None:
    context = world.context()
    moves.plan(context, REQUEST, "m1")
    for one in (world.p, world.b):
        one.compacted_topic(MOVES).write({b"line:m1": b"?"})

    [line] = MoveStore.read(context).lines()

    assert line == MoveLine.of(*MoveStore.read(context).load("m1"))
