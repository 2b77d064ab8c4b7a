"""The live view of ``srm failover run``, and what ``status`` says of a move at rest."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import get_args

import pytest
from rich.console import Console
from tests import moves
from tests.unit.engine.moves.control.moving import World, busy_world, config_in, held, planned
from tests.unit.engine.moves.giving_up import Disaster
from tests.unit.engine.moves.test_superseded import there_and_back
from tests.waiting import eventually
from typer.testing import CliRunner

from srm.cli.main import app
from srm.cli.moves import failover
from srm.cli.moves.failover import pause_note, render_moves, shown, whereabouts
from srm.domain.flow_state.replication_records import Pause
from srm.domain.moves.gate import SyncStatus
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import HELD, MoveProgress, MoveStep
from srm.domain.moves.request import MoveRequest
from srm.engine.moves.context import MoveContext
from srm.engine.moves.steps import RunEvent
from srm.engine.moves.store import MoveStore
from srm.engine.moves.verification import VerifyStatus
from srm.errors import NotFoundError, StoppedError, UnavailableError

PLAN = MovePlan("m1", 1, MoveRequest("failover", "P", "B"), ("T",), (), (), "f")


def waits(*blocking: str, asks: tuple[str, ...] = ()) -> RunEvent:
    sync = SyncStatus(
        *("m1", False, False, blocking, (), 7, (), None, 3.0, False),
        asks=asks,
    )
    return RunEvent("wait", sync)


def in_a_file(*events: RunEvent) -> list[str]:
    out = StringIO()
    with shown(PLAN, Console(file=out, width=80)) as show:
        for event in events:
            show(event)
    assert out.getvalue().endswith("\n"), "an error would stick to the line"
    return out.getvalue().splitlines()


def test_a_file_gets_a_line_when_the_step_changes_or_what_is_waited_for() -> None:
    left = VerifyStatus("m1", False, ("group g has no members on B",), {}, {}, 2.0, False)

    lines = in_a_file(
        RunEvent("hold"),
        waits("group g is still active on P (c-1, c-2)", "T is 7 records behind"),
        waits("T is 7 records behind"),
        waits("T is 7 records behind", asks=("stop the producers of T",)),
        RunEvent("go"),
        RunEvent("verify", left),
    )

    head = "3 s since the hold: 7 records to copy, 0 of 0 groups synchronised; waiting for: "
    assert lines == [
        "m1  hold",
        f"m1  wait: {head}group g is still active on P (c-1, c-2); T is 7 records behind",
        f"m1  wait: {head}T is 7 records behind",
        f"m1  wait: {head}T is 7 records behind; please: stop the producers of T",
        "m1  go",
        "m1  verify: 2 s since go; waiting for: group g has no members on B",
    ]


def test_the_silence_of_a_cluster_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover, "_SILENCE_S", 0.25)
    out = StringIO()
    with shown(PLAN, Console(file=out, width=80)) as show:
        show(RunEvent("hold"))
        eventually(lambda: "B for 0.5 s, " in out.getvalue(), "a second line")
    assert out.getvalue().splitlines()[:2] == [
        "m1  hold",
        "m1  no news from P or B for 0.25 s, too long but for hundreds of groups: see srm doctor",
    ]


def test_the_silence_of_a_cluster_names_what_is_wrong_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was said once, in a log, and hidden by lines that named neither cluster nor cause."""
    monkeypatch.setattr(failover, "_SILENCE_S", 0.25)
    out = StringIO()
    with shown(PLAN, Console(file=out, width=80)) as show:
        show(RunEvent("wait", trouble="cluster P: connection refused"))
        eventually(out.getvalue, "a line")
    assert out.getvalue().splitlines()[0] == (
        "m1  no news from P or B for 0.25 s: cluster P: connection refused"
    )


def test_what_only_becomes_less_is_not_told_again() -> None:
    lines = in_a_file(*(waits(f"T is {count} behind") for count in ("2,045 records", "12 records")))

    assert len(lines) == 1


def test_reasons_that_a_line_has_no_room_for_are_no_news() -> None:
    shown_first = tuple(f"group g-{number} is still active" for number in range(5))

    lines = in_a_file(waits(*shown_first, "group h", "group i"), waits(*shown_first, "group i"))

    assert len(lines) == 1


def test_a_partition_that_is_another_one_is_told() -> None:
    lines = in_a_file(
        waits("replication of T-0 is stopped"), waits("replication of T-1 is stopped")
    )

    assert len(lines) == 2


def test_names_are_shown_as_they_are() -> None:
    assert "group [red]" in in_a_file(waits("group [red] is still active"))[0]


def test_a_move_at_rest_names_its_outcome_instead_of_what_its_gate_would_wait_for(
    tmp_path: Path,
) -> None:
    request = MoveRequest("failover", "P", "B")
    planned = MovePlan("m1", 1, request, ("T",), groups=(), findings=(), settings={})
    context = busy_world(config_in(tmp_path)).context()

    def said(step: MoveStep) -> str:
        progress = MoveProgress("m1", step=step, times_ms={"gone": 7_000})
        return whereabouts(context, planned, progress)

    ends = "--source P --target B"
    assert all(said(step).endswith(f"'srm failover release m1 {ends}' ends it") for step in HELD)
    assert said("gone") == (
        "m1: gone since 1970-01-01 00:00:07 UTC; clients have been sent to B; if no process "
        f"carries it, 'srm failover run --move-id m1 {ends}' verifies and reports it; it waits "
        "until its groups work on B"
    )
    assert said("released").startswith(
        f"m1: released; clients remain on P; 'srm failover run --move-id m1 {ends}'"
    )
    assert f"sent to B; 'srm failover report m1 {ends}'" in said("reported")
    assert f"'srm failover release m1 {ends}' ends it" in said("held")
    again = f"hold it again ('srm failover run --move-id m1 {ends}')"
    assert context.hold_again("m1") == again
    for step in get_args(MoveStep):
        assert said(step).count("srm failover") == said(step).count(ends) > 0
    with pytest.raises(NotFoundError, match=f"see 'srm failover status {ends}'"):
        MoveStore.read(context).load("unknown")
    with pytest.raises(NotFoundError, match=f"'srm failover report --list {ends}' lists"):
        moves.kept_report(context, "unknown")


def test_a_move_that_was_given_up_says_why_and_for_how_long_clients_were_held(
    tmp_path: Path,
) -> None:
    planned = MovePlan("m1", 1, MoveRequest("failover", "P", "B"), ("T",), (), (), "f")
    times = {"holding": 1_000, "released": 46_500}
    given_up = MoveProgress("m1", step="released", times_ms=times, reason="T-0 is stopped")

    context = busy_world(config_in(tmp_path)).context()
    assert whereabouts(context, planned, given_up).startswith(
        "m1: released after 45.5 s of hold: T-0 is stopped; clients remain on P;"
    )


def on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands work on the clusters of a world."""

    @contextmanager
    def opened(*_: object, **__: object) -> Iterator[MoveContext]:
        yield world.context()

    monkeypatch.setattr(failover, "open_move", opened)
    monkeypatch.setattr(failover, "open_records", opened)


@pytest.mark.parametrize(
    ("write", "outcome"),
    [
        (10, "released after .* s of hold; clients remain on P; 'srm .* m1 .*' tries again"),
        (18, "verified since .* UTC; clients have been sent to B; .* 'srm .* m1 .*' makes"),
    ],
)
def test_an_interrupted_run_names_where_its_clients_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: int, outcome: str
) -> None:
    world = busy_world(config_in(tmp_path))
    on(world, monkeypatch)
    world.obey("near", "far")
    for each in range(write):
        world.writes.before[each] = world.passing
    world.writes.before[write] = lambda: signal.raise_signal(signal.SIGINT)
    line = f"failover run --config {tmp_path}/srm.properties --move-id m1 --yes -t Payments"

    error = CliRunner().invoke(app, [*line.split(), "-g", "near", "-g", "far"]).exception

    assert isinstance(error, StoppedError), error
    assert re.match(f"m1: {outcome}", str(error)), str(error)


def test_a_status_names_the_later_move_that_leads_the_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = busy_world(config_in(tmp_path))
    on(world, monkeypatch)
    there_and_back(world)

    def said(move_id: str) -> str:
        line = f"failover status --config {tmp_path}/srm.properties {move_id}"
        return CliRunner().invoke(app, line.split()).stdout.strip()

    file = f"--config {tmp_path}/srm.properties"
    assert said("m1").endswith(
        f"'srm failover report {file} m1 --source P --target B' shows how it went; superseded by "
        "move m2"
    )
    assert said("m2").endswith(
        f"sent to P; 'srm failover report {file} m2 --source P --target B' shows how it went"
    )


def test_a_status_of_a_decided_move_names_the_groups_that_it_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only JSON and the report named them: clients of them are on P, where B was said."""
    world = busy_world(config_in(tmp_path))
    on(world, monkeypatch)
    context = planned(world)
    world.obey("near", "far")
    world.p.delete_groups(["near"])
    moves.hold(context, "m1")
    world.report("P", "B")
    world.passing(2_000)
    assert moves.wait_status(context, "m1").ready
    moves.apply(context, "m1")
    moves.go(context, "m1")

    words = ["failover", "status", "--config", f"{tmp_path}/srm.properties", "m1"]
    sent, left = CliRunner().invoke(app, words).stdout.splitlines()

    assert sent.startswith("m1: gone since")
    assert left.startswith("group near was left out: ")
    assert left in moves.status(context, "m1").notes


def test_a_status_names_the_process_of_a_live_move_until_it_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = busy_world(config_in(tmp_path))
    on(world, monkeypatch)
    context = held(world)
    me = f"process {os.getpid()} on {context.host}"

    def said(*options: str, of: str = "m1") -> str:
        line = f"failover status --config {tmp_path}/srm.properties {of}"
        return CliRunner().invoke(app, [*line.split(), *options]).stdout

    assert f"carried by {me}, last heartbeat 2.0 s ago" in said()
    world.passing(61_000)
    assert f"no process carries it: {me}, last heartbeat 1 min 3 s ago" in said()
    for group in ("near", "far"):
        world.p.join(group)  # the lease has ended
    moves.hold(context, "m1")
    world.obey("near", "far")
    moves.wait_status(context, "m1")
    assert f"carried by {me}, last heartbeat 0.0 s ago" in said()
    world.passing()
    moves.wait_status(context, "m1")
    moves.apply(context, "m1")
    moves.go(context, "m1")
    world.passing()
    assert not moves.verify(context, "m1").done
    waits = ["group far has no members on B yet", "group near has no members on B yet"]
    assert f"until its groups work on B; {'; '.join(waits)}; carried by {me}, last" in said()
    assert f"gone; {waits[0]}; and 1 more" in " ".join(said(of="").split())
    assert json.loads(said("--json"))["carrier"] == {
        "name": me,
        "heartbeat_ms": world.clock(),
        "alive": True,
        "waits": waits,
    }
    world.passing(61_000)
    assert f"1 more; no process carries it: {me}, last heartbeat" in " ".join(said(of="").split())


def test_a_look_at_the_report_does_not_end_the_verification_of_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = busy_world(config_in(tmp_path))
    on(world, monkeypatch)
    context = held(world)
    moves.apply(context, "m1")
    moves.go(context, "m1")
    world.start("near", "B", {})

    line = f"failover report --config {tmp_path}/srm.properties m1"
    said = CliRunner().invoke(app, line.split()).stdout

    assert "group far has not resumed on B" in said
    assert "group near has not resumed" not in said
    assert MoveStore.read(context).progress("m1").step == "gone"


def test_the_list_of_moves_names_a_cluster_that_did_not_answer() -> None:
    out = StringIO()

    render_moves(Console(file=out), [], "srm failover plan", [UnavailableError("P is silent")])

    assert "Moves that only this cluster knows are missing: P is silent" in out.getvalue()


def test_the_pause_that_a_killed_run_has_left_is_named_until_the_move_is_released(
    tmp_path: Path,
) -> None:
    disaster = Disaster(busy_world(config_in(tmp_path)))
    disaster.planned()
    disaster.switch.pause(Pause("", "ann", "P is lost", 1, "m1"))

    assert pause_note("m1", disaster.context) == (
        "; P->B is paused for it, 'srm failover release m1 --source P --target B' ends that"
    )
    assert pause_note("m2", disaster.context) == ""
    moves.release(disaster.context, "m1")
    assert pause_note("m1", disaster.context) == ""
