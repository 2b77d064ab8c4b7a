"""What ``srm return status`` prints, and where ``srm residue export`` writes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from tests import moves
from tests.unit.engine.moves.control.moving import PROPERTIES, busy_world, config_in
from tests.unit.engine.moves.giving_up import Disaster
from typer.testing import CliRunner

from srm.cli.main import app
from srm.cli.moves import recovery
from srm.cli.moves.recovery import render_found
from srm.domain.moves.disaster import Outcome, PartitionOutcome
from srm.domain.recovery.source_return import PartitionReturn, SourceReturn, TopicReturn
from srm.engine.moves.context import MoveContext
from srm.engine.moves.registers import level
from srm.engine.recovery import store_outcome
from srm.errors import UnavailableError, UsageError


def test_a_rebuilt_topic_has_its_command_and_heartbeats_need_none() -> None:
    topics = (
        TopicReturn("Payments", "id", "missing", "no such topic"),
        TopicReturn("heartbeats", "id", "rebuilt", "another id", is_heartbeats=True),
    )
    out = StringIO()

    render_found(
        Console(file=out, width=200), SourceReturn("P->B", "rebuilt", "emptied", "c", "d", topics)
    )

    assert "srm restore --from B --to P --topic Payments" in out.getvalue()
    assert "--topic heartbeats" not in out.getvalue()


def test_the_residue_ends_with_its_last_record_as_in_the_list_of_ranges() -> None:
    part = PartitionReturn(
        topic="Payments",
        partition=0,
        shape="same",
        records=30,
        copied_to=801,
        log_end=831,
        high_watermark=831,
    )
    topic = TopicReturn("Payments", "id", "same", "", partitions=(part,))
    out = StringIO()

    found = SourceReturn("P->B", "same", "P is the same cluster", "c", "d", (topic,))
    render_found(Console(file=out, width=200), found)

    assert out.getvalue().startswith("P->B, return 'same': P is the same cluster.\n")
    assert ["Payments-0", "801", "830", "30", "-", "-"] in map(
        str.split, out.getvalue().splitlines()
    )


def test_an_export_into_what_is_no_directory_is_refused_before_a_cluster_is_queried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srm.cli.moves.recovery.open_return", None)
    file = tmp_path / "srm.properties"
    file.write_text("clusters = P, B\nP.bootstrap.servers = p:1\nB.bootstrap.servers = b:1\n")
    options = "--flow", "P->B", "--config", str(file), "--output", str(file / "out")

    result = CliRunner().invoke(app, ["residue", "export", *options])

    assert isinstance(result.exception, UsageError)
    assert str(result.exception).endswith("out: cannot be written (Not a directory)")


@pytest.mark.parametrize("answers", [True, False])
def test_a_settlement_adds_what_is_lost_to_the_reports_of_the_moves_of_its_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """Pages and metrics showed the range of the forecast until a command made a report."""
    disaster = Disaster(busy_world(config_in(tmp_path, PROPERTIES)))
    disaster.planned()
    disaster.through("hold", "apply", "go")
    before = moves.report(disaster.context, "m1")
    assert (before.rpo_records, before.rpo_at_least) == (None, 7)
    context = disaster.context.forward

    def settle(*_: object) -> SimpleNamespace:
        level(disaster.world.context())  # P is back
        lost = PartitionOutcome("Payments", 0, 100, 109, 9)
        store_outcome(context, Outcome("m1", "P->B", "same", 1, "ann", (lost,)))
        return SimpleNamespace(applied=True)

    def opened(*_: object) -> AbstractContextManager[MoveContext]:
        if not answers:
            raise UnavailableError("P does not answer again")
        return nullcontext(disaster.world.context())

    returned = SimpleNamespace(settle=settle)
    monkeypatch.setattr(recovery, "open_return", lambda *_: nullcontext((context, None)))
    monkeypatch.setattr(recovery, "ReturnedFlow", lambda *_: returned)
    monkeypatch.setattr(recovery, "render_settled", lambda *_: None)
    monkeypatch.setattr(recovery, "open_move", opened)
    options = "--flow", "P->B", "--config", str(tmp_path / "srm.properties"), "--yes"

    result = CliRunner().invoke(app, ["return", "settle", *options])

    assert result.exit_code == 0, result.output
    after = moves.kept_report(disaster.context, "m1").report
    assert after.rpo_records == (9 if answers else None)
