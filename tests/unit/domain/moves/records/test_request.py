"""The direction of a move follows from its operation, unless its ends are named."""

from __future__ import annotations

import pytest

from srm.domain.moves.request import ends
from srm.errors import UsageError

PAIR = ("P", "B")


@pytest.mark.parametrize(
    ("operation", "source", "target", "found"),
    [
        ("failover", None, None, ("P", "B")),
        ("failback", None, None, ("B", "P")),
        ("failback", "", "", ("B", "P")),
        ("failover", None, "P", ("B", "P")),
        ("failback", None, "B", ("P", "B")),
        ("failback", "P", None, ("P", "B")),
        ("failback", "P", "B", ("P", "B")),
    ],
)
def test_a_failback_leaves_the_second_cluster_unless_an_end_is_named(
    operation: str, source: str | None, target: str | None, found: tuple[str, str]
) -> None:
    assert ends(PAIR, operation, source, target) == found


def test_between_three_clusters_both_ends_are_named() -> None:
    three = (*PAIR, "C")

    assert ends(three, "failback", "C", "P") == ("C", "P")
    with pytest.raises(UsageError, match=r"name source and target of the move.* P, B, C"):
        ends(three, "failback", "C", None)
