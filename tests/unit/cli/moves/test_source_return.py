"""What ``srm return status`` prints."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from srm.cli.moves.recovery import render_found
from srm.domain.recovery.source_return import SourceReturn, TopicReturn


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
