"""Tables of all commands: whole in a pipe, folded on a terminal, and never cut off."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest
from rich.console import Console, RenderableType
from tests.unit.cli.filled import filled, long

from srm.cli.console import open_console
from srm.cli.flows import for_flows, groups, jobs, replicator, status, topics
from srm.cli.moves import failover, recovery
from srm.domain.metrics import WindowMetric
from srm.domain.moves.disaster import Drill
from srm.domain.moves.line import MoveLine
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import MoveProgress
from srm.domain.moves.request import MoveRequest
from srm.domain.names.topics import Flow
from srm.domain.recovery.restore import RestorePlan
from srm.domain.recovery.source_return import SourceReturn
from srm.domain.verification.verification import VerificationSummary
from srm.engine.cluster_ports import TopicSpec
from srm.engine.control.topic_sync import TopicSyncPlan
from srm.engine.flows.supervision import DriverAnswer
from srm.engine.groups.checkpoints import CheckpointSummary
from srm.engine.groups.group_sync import GroupSyncSummary
from srm.engine.recovery import ResidueRange
from srm.engine.status.status import FlowStatus
from srm.engine.why import Why
from srm.errors import UnavailableError
from srm.pages.moves import plan_view
from srm.pages.reports import drill_view, history_view
from srm_lab.cli import stack
from srm_lab.stack.stack import StackStatus

Render = Callable[[Console], None]
FLOWS: Final = (Flow("P", "B"),)
REQUEST: Final = MoveRequest("failover", "P", "B")


def printed(view: Callable[[], RenderableType]) -> Render:
    return lambda console: console.print(view())


VIEWS: Final[Mapping[str, tuple[Render, tuple[str, ...]]]] = {
    "status": (
        lambda console: status._render(console, [filled(FlowStatus, pause=None)]),
        ("topic", "remote_topic", "group"),
    ),
    "why": (
        lambda console: status._render_answers(console, [filled(Why)]),
        ("question", "answer", "action"),
    ),
    "stack status": (
        lambda console: stack._render_status(console, filled(StackStatus)),
        ("name", "address", "log"),
    ),
    "stack up": (
        lambda console: stack._render_up(console, filled(StackStatus)),
        ("config", "logs", "bootstrap"),
    ),
    "checkpoints emit": (
        lambda console: groups._render_checkpoints(
            console, [filled(CheckpointSummary, skipped="")]
        ),
        ("group", "topic", "reason"),
    ),
    "groups sync": (
        lambda console: groups._render_offsets(console, [filled(GroupSyncSummary, skipped="")]),
        ("group", "topic", "reason"),
    ),
    "topics sync": (
        lambda console: topics._render(console, [filled(topics.FlowTopicSync)]),
        ("skipped",),
    ),
    "verify": (
        lambda console: jobs._render(console, filled(VerificationSummary)),
        ("topic",),
    ),
    "metrics show": (
        lambda console: jobs._render_windows(console, [filled(WindowMetric)], FLOWS),
        ("topic",),
    ),
    "failover status": (
        lambda console: failover.render_moves(
            console, [MoveLine.of(filled(MovePlan, request=REQUEST), filled(MoveProgress))], ""
        ),
        ("move_id", "group"),
    ),
    "failover plan": (
        printed(lambda: plan_view(filled(MovePlan, request=REQUEST))),
        ("group", "topic"),
    ),
    "failover drill": (printed(lambda: drill_view(filled(Drill))), ("group",)),
    "failover drill --history": (
        printed(lambda: history_view([filled(Drill)], Flow("P", "B"))),
        ("drill_id",),
    ),
    "replicator restart": (
        lambda console: replicator._render(console, (filled(DriverAnswer),), []),
        ("application", "host"),
    ),
    "residue list": (
        lambda console: recovery._render(console, (filled(ResidueRange),)),
        ("topic", "note"),
    ),
    "restore --dry-run": (
        lambda console: recovery._show_plan(console, filled(RestorePlan)),
        ("topic", "copy", "reason"),
    ),
    "return status": (
        lambda console: recovery.render_found(console, filled(SourceReturn)),
        ("topic",),
    ),
}


@pytest.mark.parametrize("command", VIEWS)
def test_names_are_whole_where_the_table_goes_into_a_pipe(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    render, names = VIEWS[command]

    render(open_console())

    shown = capsys.readouterr().out
    assert [name for name in names if long(name) not in shown] == []


@pytest.mark.parametrize("command", VIEWS)
def test_nothing_is_cut_off_on_a_terminal_of_80_columns(command: str) -> None:
    console = Console(width=80, force_terminal=True, record=True, quiet=False)
    with console.capture() as captured:
        VIEWS[command][0](console)

    assert "…" not in captured.get()


def test_a_plan_that_an_operator_approves_and_a_list_of_moves_are_shown_to_the_last_row(
    capsys: pytest.CaptureFixture[str],
) -> None:
    created = tuple(TopicSpec(f"P.T{number}", 1, 1, {}) for number in range(300))
    planned = topics.FlowTopicSync(FLOWS[0], dry_run=True, plan=TopicSyncPlan(create=created))
    topics._render(open_console(), [planned])
    assert "P.T299 " in capsys.readouterr().out

    made = [
        MoveLine.of(filled(MovePlan, request=REQUEST, move_id=f"m{number}"), filled(MoveProgress))
        for number in range(300)
    ]
    failover.render_moves(open_console(), made, "")
    assert "m299 " in capsys.readouterr().out


def test_a_table_of_names_is_a_listing_wherever_it_is_made() -> None:
    """Numbers and fixed words alone may do without: a demo's tables, a running replicator's."""
    root = Path(status.__file__).parents[2]
    bare = {
        file.name
        for folder in ("cli", "pages")
        for file in (root / folder).glob("*.py")
        if re.search(r"\bTable\((?!\))|\bTable\.grid\(", file.read_text("utf-8"))
    }

    assert bare <= {"demo.py", "disaster_view.py", "replicate.py", "stack.py", "tables.py"}


def test_long_work_shows_now_and_then_where_it_is_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = iter(range(13))
    monkeypatch.setattr(for_flows, "time", SimpleNamespace(monotonic=lambda: next(seconds)))

    with for_flows.progress("planning") as report:
        for records in range(1000, 11_000, 1000):
            report(f"{records:,} of 10,000 [records] compared")

    assert capsys.readouterr().err.splitlines() == [
        "5,000 of 10,000 [records] compared",
        "10,000 of 10,000 [records] compared",
    ]


def test_a_command_for_thousands_of_groups_names_the_first_that_failed() -> None:
    errors = {f"g{number}": "not authorized" for number in range(1000, 5000)}

    with pytest.raises(UnavailableError, match=r"^4,000 groups skipped: g1000: .*and 3,995 more$"):
        for_flows.raise_group_errors(errors)
