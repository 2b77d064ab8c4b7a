"""What ``srm replicator`` shows."""

from __future__ import annotations

import pytest
from rich.console import Console

from srm.cli.flows.replicator import _render
from srm.domain.names.topics import Flow
from srm.engine.flows.supervision import DriverAnswer, Outcome


@pytest.mark.parametrize(
    ("outcome", "others", "told"),
    [("ended", ["B->P"], True), ("ended", [], False), ("not-running", ["B->P"], False)],
)
def test_who_ends_one_flow_of_an_application_hears_that_others_may_have_ended_with_it(
    outcome: Outcome, others: list[str], told: bool
) -> None:
    console = Console(width=200)

    with console.capture() as shown:
        _render(console, (DriverAnswer(Flow("P", "B"), "stop", outcome, "local-1", "h"),), others)

    assert ("srm status shows whether B->P still runs" in shown.get()) is told
