"""What ``srm return status`` prints, and where ``srm residue export`` writes."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from srm.cli.main import app
from srm.cli.moves.recovery import render_found
from srm.domain.recovery.source_return import PartitionReturn, SourceReturn, TopicReturn
from srm.errors import UsageError


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
        "Payments", 0, "same", copied_to=801, log_end=831, high_watermark=831, records=30
    )
    topic = TopicReturn("Payments", "id", "same", "", partitions=(part,))
    out = StringIO()

    render_found(Console(file=out, width=200), SourceReturn("P->B", "same", "", "c", "d", (topic,)))

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
