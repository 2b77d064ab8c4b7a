"""Several moves that give the same source up, and their ends: they share its pause."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import REQUEST
from tests.unit.engine.moves.giving_up import UNPLANNED, Disaster, disaster

from srm.domain.flow_state.replication_records import Pause
from srm.domain.names.topics import TopicPartition
from srm.engine.moves.store import MoveStore
from srm.errors import ConflictError

__all__ = ["disaster"]


def test_a_move_that_holds_the_same_clients_is_taken_over_from(disaster: Disaster) -> None:
    context = disaster.world.context()
    moves.plan(context, REQUEST, "stuck")
    moves.hold(context, "stuck")

    plan = disaster.planned()
    disaster.through("hold", "apply", "go")

    assert any("move stuck holds clients" in line for line in plan.warnings)
    assert {(r.move_id, r.state) for r in disaster.world.routes("B").values()} == {("m1", "go")}


def test_a_release_before_go_lets_the_flow_go_on(disaster: Disaster) -> None:
    disaster.planned()
    disaster.through("hold")

    released = moves.release(disaster.context, "m1")

    assert released.step == "released"
    assert disaster.pause() is None


def test_a_release_leaves_a_pause_of_somebody_else(disaster: Disaster) -> None:
    disaster.planned()
    disaster.through("hold")
    other = disaster.pause()
    assert other is not None
    disaster.switch.pause(replace(other, move_id="another"))

    moves.release(disaster.context, "m1")

    assert disaster.pause() is not None


@pytest.mark.parametrize("topics", [(), ("Payments",)])
def test_a_group_that_follows_the_topics_of_an_earlier_move_gets_its_offsets(
    disaster: Disaster, topics: tuple[str, ...]
) -> None:
    """Its plan shows them: the producers are on B by then, so the topics do not move again."""
    world = disaster.world
    disaster.planned(groups=("near",))
    disaster.through("hold", "apply", "go")
    request = replace(UNPLANNED, topics=topics, groups=("far",))

    plan = moves.plan(disaster.context, request, "m2")
    moves.hold(disaster.context, "m2")
    moves.apply(disaster.context, "m2")
    moves.go(disaster.context, "m2")

    assert (plan.topics, plan.blocking) == ((), ())
    assert world.offsets("B", "far") == {"P.Payments-0": 10, "Payments-0": 0}
    assert world.routes("B")["topic:Payments"].move_id == "m1"
    world.b.commit("far", {TopicPartition("P.Payments", 0): 15})
    moves.verify(disaster.context, "m2")
    assert moves.report(disaster.context, "m2").groups["far"].partitions[0].applied == 10


def test_what_a_group_without_readable_offsets_reads_again_is_not_known(disaster: Disaster) -> None:
    """A dead broker of B led its partition of offsets; a checkpoint is there."""
    disaster.world.b.hide_group("far")

    plan = moves.plan(disaster.context, UNPLANNED, "m2", dry_run=True)

    assert plan.forecast is not None
    assert [one.group for one in plan.forecast.groups] == ["near"]
    assert plan.forecast.unseen == ("far",)
    assert plan.numbers()["unread_backlog"] is None
    assert "group far is not changed: its offsets cannot be read" in str(plan.warnings)


def test_a_group_without_readable_offsets_does_not_keep_others_from_a_report(
    disaster: Disaster,
) -> None:
    disaster.world.b.hide_group("far")
    moves.plan(disaster.context, UNPLANNED, "m1")
    disaster.through("hold", "apply", "go")
    disaster.world.start("near", "B", {"P.Payments": 101})

    moves.verify(disaster.context, "m1")
    report = moves.report(disaster.context, "m1")

    assert disaster.world.offsets("B", "near")["P.Payments-0"] == 101
    assert report.groups["near"].resumed
    assert "group far was not changed: its offsets cannot be read" in str(report.problems)


@pytest.mark.parametrize("ends_with", ["release", "killed before its hold"])
def test_the_source_stays_given_up_when_a_second_move_of_other_groups_is_released(
    disaster: Disaster, ends_with: str
) -> None:
    """A group that was left out of the first move is moved later, and that is given up."""
    disaster.planned(groups=("near",))
    disaster.through("hold", "apply", "go")
    moves.plan(disaster.context, replace(UNPLANNED, groups=("far",)), "m2")
    if ends_with == "release":
        moves.hold(disaster.context, "m2")
    else:
        disaster.switch.pause(Pause("r2", "bob", "m2", 2, "m2"))

    moves.release(disaster.context, "m2")

    pause = disaster.pause()
    assert pause is not None
    assert pause.moves == ("m1",)


@pytest.mark.parametrize("steps", [("hold",), ("hold", "apply", "go"), ("hold", "release")])
def test_a_move_that_another_one_has_taken_over_from_does_not_say_that_its_clients_went(
    disaster: Disaster, steps: tuple[str, ...]
) -> None:
    """Two engineers at once: the routes of the later hold outrank what the earlier one says."""
    disaster.planned()
    disaster.through("hold", "apply")
    moves.plan(disaster.context, UNPLANNED, "m2")
    for step in steps:
        getattr(moves, step)(disaster.context, "m2")
    before = disaster.world.routes("B")

    with pytest.raises(ConflictError, match="m2"):
        disaster.through("go")

    assert disaster.world.routes("B") == before
    assert not MoveStore.read(disaster.context).progress("m1").is_decided
    disaster.through("release")
    assert disaster.world.routes("B") == before
    if "go" in steps:  # else clients that work on B would be held once more
        with pytest.raises(ConflictError, match="is routed to B, so it cannot leave P"):
            disaster.through("hold")
        assert disaster.world.routes("B") == before
        assert disaster.pause().moves == ("m2",)
        return
    disaster.through("hold", "apply", "go")
    assert {(r.move_id, r.state) for r in disaster.world.routes("B").values()} == {("m1", "go")}


def test_a_release_while_the_copies_are_being_sealed_ends_the_hold(disaster: Disaster) -> None:
    """Sealing takes its time where a broker is away; the flow would go on under the move."""
    disaster.planned()
    disaster.switch.before_seal = lambda: disaster.through("release")

    with pytest.raises(ConflictError, match="released in the meantime"):
        disaster.through("hold")

    assert disaster.pause() is None
    assert disaster.world.routes("B") == {}
    disaster.switch.before_seal = lambda: None
    disaster.through("hold", "apply", "go")


def test_a_hold_that_was_released_before_it_paused_the_flow_lets_it_go_on(
    disaster: Disaster,
) -> None:
    disaster.planned()
    pause = disaster.switch.pause

    def late(wanted: Pause) -> Pause | None:
        disaster.through("release")
        return pause(wanted)

    disaster.switch.pause = late  # type: ignore[method-assign]

    with pytest.raises(ConflictError, match="released in the meantime"):
        disaster.through("hold")

    assert disaster.pause() is None


def test_nobody_is_sent_away_while_the_flow_from_the_source_goes_on(disaster: Disaster) -> None:
    """The source has answered, and somebody has settled its return before the decision."""
    disaster.planned()
    disaster.through("hold", "apply")
    assert disaster.switch.resume()

    with pytest.raises(ConflictError, match="no longer paused for move m1"):
        disaster.through("go")

    assert {r.state for r in disaster.world.routes("B").values()} == {"hold"}


@pytest.mark.parametrize("number", [1, 2, 3])
def test_of_a_go_and_a_settlement_at_its_last_step_one_is_refused(
    disaster: Disaster, number: int
) -> None:
    """The source has answered, and its return is settled while the move is being decided."""
    disaster.planned()
    disaster.through("hold", "apply")
    looked_at = disaster.pause()
    assert looked_at is not None

    def settle() -> None:
        with suppress(ConflictError):
            disaster.switch.resume(request=looked_at.request)

    disaster.world.writes.before[disaster.world.writes.count + number] = settle
    with suppress(ConflictError):
        disaster.through("go")

    decided = MoveStore.read(disaster.context).progress("m1").is_decided
    assert decided == (disaster.pause() is not None)
    assert {r.state for r in disaster.world.routes("B").values()} == {"go" if decided else "hold"}


@pytest.mark.parametrize("other", [(), ("m2",)], ids=["alone", "beside another move"])
@pytest.mark.parametrize("settled", [True, False])
def test_a_late_hold_of_a_decided_move_pauses_the_flow_only_while_it_is_unsettled(
    disaster: Disaster, other: tuple[str, ...], *, settled: bool
) -> None:
    """Two operators hold one move: the second wakes up when the first has finished it."""
    disaster.planned()
    pause = disaster.switch.pause

    def late(wanted: Pause, request: str | None = None) -> Pause | None:
        disaster.switch.pause = pause  # type: ignore[method-assign]
        disaster.world.passing(1)
        disaster.through("hold", "apply", "go")
        assert not settled or disaster.switch.resume()
        for move_id in other:
            pause(replace(wanted, request="another", move_id=move_id))
        return pause(wanted, request)

    disaster.switch.pause = late  # type: ignore[method-assign]
    if settled:
        with pytest.raises(ConflictError, match="m1 was decided and settled in the meantime"):
            disaster.through("hold")
    else:
        disaster.through("hold")

    left = disaster.pause()
    assert (() if left is None else left.moves) == ((() if settled else ("m1",)) + other)
    assert {(r.cluster, r.state) for r in disaster.world.routes("B").values()} == {("B", "go")}


def test_a_flow_goes_on_when_the_last_move_that_had_paused_it_is_released(
    disaster: Disaster,
) -> None:
    disaster.planned(groups=("near",))
    moves.plan(disaster.context, replace(UNPLANNED, groups=("far",)), "m2")
    disaster.through("hold")
    moves.hold(disaster.context, "m2")

    disaster.through("release")
    pause = disaster.pause()
    assert pause is not None
    assert pause.moves == ("m2",)
    moves.release(disaster.context, "m2")

    assert disaster.pause() is None
