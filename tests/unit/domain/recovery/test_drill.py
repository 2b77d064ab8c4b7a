"""The record of a drill: what is none is damaged, and stands in nobody's way."""

from __future__ import annotations

import pytest

from srm.domain.moves.disaster import Drill
from srm.errors import IntegrityError

DRILL = Drill("drill-1", "P->B", "done", 1000, "host", 7, steps={"groups": 1.5})


def test_a_drill_is_read_as_it_was_written() -> None:
    assert Drill.decode(DRILL.value()) == DRILL


@pytest.mark.parametrize(
    ("was", "wrong"),
    [
        (b"P->B", b"junk"),
        (b"P->B", b""),
        (b"P->B", b"P->P"),
        (b"P->B", b"P->B->C"),
        (b"1.5", b"NaN"),
        (b"1.5", b"1e999"),
        (b"1000", b"9" * 400),
    ],
)
def test_one_of_no_flow_or_without_finite_numbers_is_damaged(was: bytes, wrong: bytes) -> None:
    """Pages and metrics of all flows would be those of nobody."""
    with pytest.raises(IntegrityError, match="stored drill is damaged"):
        Drill.decode(DRILL.value().replace(was, wrong))
