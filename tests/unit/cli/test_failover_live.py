"""The live view of ``srm failover run``, and what ``status`` says of a move at rest."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from srm.cli.failover import _live
from srm.cli.failover_status import at_rest
from srm.domain.move.plan import MovePlan
from srm.domain.move.request import MoveRequest
from srm.errors import ConflictError


def test_an_error_after_the_live_view_begins_on_a_line_of_its_own_in_a_file() -> None:
    out = StringIO()
    with (
        pytest.raises(ConflictError),
        _live("m1  hold > wait", Console(file=out)),  # any renderable will do
    ):
        raise ConflictError("cannot start")

    assert out.getvalue().endswith("hold > wait\n")


def test_a_move_at_rest_names_its_outcome_instead_of_what_its_gate_would_wait_for() -> None:
    request = MoveRequest("failover", "P", "B")
    planned = MovePlan(
        "m1", 1, request, ("T",), groups=(), blocking=(), warnings=(), fingerprint="f"
    )

    assert at_rest(planned, "held") is None
    assert (at_rest(planned, "released") or "").startswith(
        "m1: released; clients were left on P; the same 'srm failover run' with --move-id m1"
    )
    assert "sent to B; 'srm failover report m1'" in (at_rest(planned, "reported") or "")
