"""Looking goes on whatever happens: a look that fails says so, and the next one follows."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests import moves
from tests.service_views import config_of
from tests.unit.engine.moves.control.moving import busy_world, config_in, held, planned
from tests.waiting import DEADLINE_S, eventually

from srm.domain.names.topics import Flow
from srm.engine.control import control_lists
from srm.engine.drill import read_drills
from srm.engine.moves.tables import MoveRecords
from srm.errors import UnavailableError
from srm.service.views import watching
from srm.service.views.flow_rows import move_row, summary
from srm.service.views.watching import TargetWatch, end_all
from srm_lab.testing.fake_cluster import FakeCluster

FLOW = Flow("P", "B")


class Followed(FakeCluster):
    """A cluster whose tables somebody follows."""

    def follow(self, topic: str, sink: object) -> None: ...


def opened(alias: str, *_: object, **__: object) -> AbstractContextManager[FakeCluster]:
    return nullcontext(Followed(alias))


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[TargetWatch]:
    monkeypatch.setattr(watching, "KafkaCluster", opened)
    monkeypatch.setattr(watching, "_AGAIN_S", 0.0)
    # It looks again when it is told to.
    config = config_of(FLOW)
    config = replace(config, service=replace(config.service, refresh=timedelta(minutes=10)))
    made = TargetWatch(config, "B", (FLOW,))
    yield made
    end_all([made])


def test_a_target_that_no_look_at_its_flows_reaches_is_silent_itself(
    watch: TargetWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tables in memory said for a minute and a half that it was up."""
    watch.start()
    eventually(lambda: watch.look.looked_ms and not watch.look.error, "a look")

    def silent(*_: object) -> None:
        raise UnavailableError("cluster B does not answer")

    monkeypatch.setattr(watching, "observe", silent)
    watch.refresh()
    eventually(lambda: watch.look.error, "the look fails")

    assert watch.look.error == watch.look.flows[FLOW].error == "cluster B does not answer"


class Broken:
    """Fails as nobody has expected, so many times."""

    def __init__(self, function: Any, times: int) -> None:
        self.function = function
        self.left = times

    def __call__(self, *arguments: object, **named: object) -> Any:
        self.left -= 1
        if self.left >= 0:
            raise TypeError("nobody has expected this")
        return self.function(*arguments, **named)


def test_a_look_at_a_flow_that_fails_in_an_unknown_way_is_an_error_and_not_the_last_one(
    watch: TargetWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Broken(control_lists.load, 1)
    monkeypatch.setattr(control_lists, "load", broken)

    watch.start()
    eventually(lambda: "(TypeError)" in watch.look.flows[FLOW].error, "the state of the look")
    watch.refresh()
    eventually(lambda: watch.look.flows[FLOW].view is not None, "the state of the look")
    assert watch.look.flows[FLOW].error == ""


def test_what_the_target_keeps_of_moves_may_fail_so_too(
    watch: TargetWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "read_drills", Broken(read_drills, 1))

    watch.start()
    eventually(lambda: "(TypeError)" in watch.look.error, "the state of the look")
    watch.refresh()
    eventually(lambda: watch.look.looked_ms > 0 and not watch.look.error, "the state of the look")


def test_what_is_seen_of_a_flow_is_shown_while_the_rest_hangs(
    watch: TargetWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr(watching, "read_drills", lambda _target: goes_on.wait(DEADLINE_S) and ())

    watch.start()
    try:
        eventually(lambda: watch.look.flows[FLOW].view is not None, "the state of the flow")
        assert not watch.look.looked_ms
    finally:
        goes_on.set()


def test_a_target_that_cannot_be_opened_is_tried_again_and_says_why_in_between(
    watch: TargetWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Broken(opened, 10**9)
    monkeypatch.setattr(watching, "KafkaCluster", broken)

    watch.start()
    eventually(lambda: "(TypeError)" in watch.look.error, "the state of the look")
    assert not watch.look.looked_ms
    broken.left = 0
    eventually(lambda: bool(watch.look.looked_ms), "the state of the look")
    assert not watch.look.error


def test_a_look_that_hangs_makes_its_flow_unknown_and_not_what_it_was(
    watch: TargetWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the call to a broker that hangs has failed: many seconds in which all looks well."""
    monkeypatch.setattr(watching, "_SLOW_S", 0.0)
    monkeypatch.setattr(watching, "now_ms", lambda: 1_000)  # as in two looks of one millisecond
    watch.start()
    eventually(lambda: watch.look.flows[FLOW].view is not None, "a first look")
    goes_on = threading.Event()
    load = control_lists.load
    monkeypatch.setattr(
        control_lists, "load", lambda *given: goes_on.wait(DEADLINE_S) and load(*given)
    )

    watch.refresh()
    try:
        eventually(lambda: "P or B hangs" in watch.look.flows[FLOW].error, "the state of the flow")
        assert watch.look is watch.look  # rows are made of each look once
        assert summary(watch.look.flows[FLOW]).state == "UNKNOWN"
    finally:
        goes_on.set()
    eventually(lambda: not watch.look.flows[FLOW].error, "the state of the flow")


def test_a_move_that_holds_clients_is_seen_with_what_it_waits_for(tmp_path: Path) -> None:
    world = busy_world(config_in(tmp_path))
    context = planned(world)
    moves.hold(context, "m1")
    world.passing()
    moves.wait_status(context, "m1")

    [look] = watching._moves(MoveRecords.read(world.b))
    assert any("group far is still active on P" in reason for reason in look.waits)
    assert look.carrier
    assert look.carrier.heartbeat_ms == context.now_ms()
    assert look.carrier.name == f"process {os.getpid()} on {context.host}"

    moves.release(context, "m1")
    [look] = watching._moves(MoveRecords.read(world.b))
    assert look.waits == ()
    assert "group far is still active on P" in look.progress.reason


def test_a_report_that_was_made_during_the_hold_says_nothing_of_the_move_since(
    tmp_path: Path,
) -> None:
    """Rows and pages said 'clients were not moved' while it verified, and of a release not why."""
    world = busy_world(config_in(tmp_path))
    context = held(world)
    moves.report(context, "m1")
    moves.apply(context, "m1")
    moves.go(context, "m1")

    [look] = watching._moves(MoveRecords.read(world.b))
    assert move_row(look).problems == ()

    assert not moves.report(context, "m1").ok
    [look] = watching._moves(MoveRecords.read(world.b))
    absent = {f"group {name} has not resumed on B" for name in ("far", "near")}
    assert {*move_row(look).problems} == absent


def test_a_report_of_a_move_that_has_not_ended_is_no_verdict(tmp_path: Path) -> None:
    """An operator looked at the report of a move that waited, and each page said that it failed."""
    world = busy_world(config_in(tmp_path))
    context = held(world)
    moves.report(context, "m1")

    [look] = watching._moves(MoveRecords.read(world.b))
    assert (look.report, move_row(look).problems) == (None, ())
