"""The live view of ``srm failover run``."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from srm.cli.failover import _live
from srm.errors import ConflictError


def test_an_error_after_the_live_view_begins_on_a_line_of_its_own_in_a_file() -> None:
    out = StringIO()
    with (
        pytest.raises(ConflictError),
        _live("m1  hold > wait", Console(file=out)),  # any renderable will do
    ):
        raise ConflictError("cannot start")

    assert out.getvalue().endswith("hold > wait\n")
