"""An unplanned move loses no more than the approval accepts, however old its numbers are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests import moves
from tests.unit.engine.moves.giving_up import Disaster, disaster

from srm.domain.moves.disaster import Forecast
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.report import Approval, beyond_approval
from srm.domain.offset_map.offset_map import Position
from srm.errors import ConflictError

__all__ = ["disaster"]


def approve(disaster: Disaster, plan: MovePlan) -> None:
    now_ms = disaster.context.now_ms()
    approval = Approval("ann", "Airflow", now_ms, plan.summary(), plan.numbers())
    moves.approve(disaster.context, "m1", approval)


def test_a_loss_beyond_the_approval_holds_nothing_until_it_is_approved_again(
    disaster: Disaster,
) -> None:
    world = disaster.world
    approve(disaster, disaster.planned())
    world.p.produce("Payments", records=20)
    disaster.copied(Position(100, 101, 127), heard_ms=world.clock())
    world.p.fail()

    with pytest.raises(ConflictError, match="up to 27 records now, the approval by ann accepts 7"):
        disaster.through("hold")
    assert disaster.pause() is None
    assert not world.routes("B")

    approve(disaster, disaster.planned())
    disaster.through("hold", "apply", "go")
    report = moves.report(disaster.context, "m1")
    assert [one.numbers["accepted_rpo"] for one in report.approvals] == [7, 27]


def test_what_is_only_found_once_the_flow_is_paused_needs_an_approval_too(
    disaster: Disaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    approve(disaster, disaster.planned())
    seal = disaster.context.forward.own_switch.__class__.seal

    def with_more(*given: object) -> object:
        disaster.copied(Position(100, 101, 108), heard_ms=disaster.world.clock())
        return seal(*given)

    monkeypatch.setattr(disaster.switch.__class__, "seal", with_more)
    with pytest.raises(ConflictError, match="up to 8 records now, the approval by ann accepts 7"):
        disaster.through("hold")
    pause = disaster.pause()
    assert pause is None or "m1" not in pause.moves
    assert not disaster.world.routes("B")


def test_an_approval_covers_what_the_source_takes_within_the_time_limit(disaster: Disaster) -> None:
    plan = disaster.planned(wait_seconds=60)
    assert plan.forecast is not None
    forecast = replace(plan.forecast, rate=10.0)

    assert replace(plan, forecast=forecast).accepted_rpo == 7 + 600
    brief = replace(plan.request, wait_seconds=1.0)
    assert replace(plan, forecast=forecast, request=brief).accepted_rpo == 7 + 600


def test_a_bound_that_became_unknown_needs_an_approval(disaster: Disaster) -> None:
    plan = disaster.planned()
    assert plan.forecast is not None
    [topic] = plan.forecast.topics
    unknown: Forecast = replace(plan.forecast, topics=(replace(topic, at_most=None),))
    approval = Approval("ann", "--yes", 1, "", plan.numbers())

    assert beyond_approval([approval], plan.forecast) == ""
    assert "the loss is unknown now" in beyond_approval([approval], unknown)
    assert beyond_approval([replace(approval, numbers={"accepted_rpo": None})], unknown) == ""
    assert beyond_approval([], unknown) == ""
