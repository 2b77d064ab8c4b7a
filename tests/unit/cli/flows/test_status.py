"""``srm status``: the state of a flow in one word, why, and what to do, each said once."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

from rich.console import Console

from srm.cli.flows.status import _render
from srm.domain.flow_state.replication_records import Pause
from srm.domain.names.topics import Flow
from srm.engine.flows.supervision import DriverStatus, SlotStatus
from srm.engine.status.status import FlowStatus, GroupStatus, TopicStatus
from srm.errors import UnavailableError

WELL = FlowStatus(
    Flow("P", "B"),
    enabled=True,
    time_ms=1,
    driver=DriverStatus("d", "local-1", "host-7", 42, 0, age_ms=500, alive=True),
    slots=(SlotStatus("0", 1, 2, 500, alive=True),),
    topics=(TopicStatus("Payments", "P.Payments", 1, 1, 100, 0, "caught-up"),),
)


def shown(*flows: FlowStatus) -> list[str]:
    out = StringIO()
    _render(Console(file=out, width=10_000), list(flows))
    return out.getvalue().splitlines()


def test_a_flow_that_is_well_has_one_word_for_it() -> None:
    lines = shown(WELL)

    assert lines[0].startswith("P->B: RUNNING, replicator local-1 on host-7, last heartbeat 0 s")
    assert lines[2].split() == ["Payments", "P.Payments", "1", "100", "0", "caught-up", "RUNNING"]
    assert len(lines) == 3


def test_the_pages_show_what_the_command_prints() -> None:
    driver = DriverStatus("d", "local-17", "host-7", 42, 0, age_ms=500, alive=True)
    slots = tuple(SlotStatus(str(number), 1, 2, 500, alive=True) for number in range(2))

    line = shown(replace(WELL, driver=driver, slots=slots, remaining=12))[0]

    root = Path(__file__).parents[4]
    for page in (root / "README.md", root / "docs" / "failover.md"):
        assert f"\n{line}\nif P died now: " in page.read_text("utf-8")


def test_reasons_come_with_what_to_do_and_no_hint_says_it_again() -> None:
    driver = replace(
        WELL.driver or DriverStatus("", "", "", 0, 0, age_ms=0, alive=False), alive=False
    )
    hint = "no replicator is running: srm replicate --flow 'P->B'"
    down = replace(
        WELL, driver=driver, slots=(), hints=(hint, "no group is selected: srm-control groups")
    )

    lines = shown(down)

    assert lines[0].startswith("P->B: STOPPED")
    assert lines[1] == (
        "why the replicator on host-7 sent its last heartbeat 0 s ago: srm replicate --flow 'P->B'"
    )
    assert [line for line in lines if line.startswith("hint")] == [
        "hint no group is selected: srm-control groups"
    ]


def test_what_a_stopped_partition_says_to_do_is_what_to_do_about_the_flow() -> None:
    action = "grant Read on topic T"
    stopped = replace(WELL.topics[0], state="stopped", reason=f"0: no right; {action}")
    topic = replace(stopped, action=action)

    lines = shown(replace(WELL, topics=(topic,)))

    assert lines[0].startswith("P->B: STOPPED")
    assert lines[1] == "why 1 topic stopped: Payments: grant Read on topic T"


def test_a_flow_that_cannot_be_read_has_its_line_next_to_the_others() -> None:
    out = StringIO()
    failed = Flow("B", "P"), UnavailableError("P does not answer", "start it")

    _render(Console(file=out, width=200), [WELL], [failed])

    assert out.getvalue().splitlines()[-1] == "B->P: UNKNOWN, P does not answer; start it"


def test_groups_have_their_lag_next_to_what_is_not_copied() -> None:
    group = GroupStatus("g", "empty", "empty", {"translated": 1}, 3, 0, lag=40)

    head, row = shown(replace(WELL, groups=(group, replace(group, lag=None))))[-3:-1]

    assert head.split()[-4:] == ["lag", "not", "copied", "skipped"]
    assert row.split()[-3:] == ["40", "3", "0"]


def test_a_paused_flow_says_since_when_and_by_whom_and_keeps_its_errors() -> None:
    pause = Pause("r", "ada", "P was given up", 1_700_000_000_000)

    lines = shown(replace(WELL, pause=pause, errors={"driver": "damaged"}, hints=("go on so",)))

    assert lines[0].startswith("P->B: PAUSED")
    assert lines[1].startswith("paused since 2023-11-14")
    assert lines[1].endswith("by ada: P was given up")
    assert "error driver: damaged" in lines
    assert lines[-1] == "hint go on so"


def test_what_is_left_of_a_source_that_is_away_is_as_of_when_it_last_answered() -> None:
    away = replace(WELL, source_error="timed out", time_ms=100_000)

    assert shown(replace(away, heard_ms=69_000))[0].endswith(
        "1 of 1 slots alive, 0 offsets to copy when P last answered, 31 s ago"
    )
    assert shown(away)[0].endswith("0 offsets to copy when P last answered")
