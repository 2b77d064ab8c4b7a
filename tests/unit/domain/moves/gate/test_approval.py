"""Approvals of a move: who, how, when, with which numbers in view."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.domain.moves.report.reporting import approvals

from srm.domain.moves.report import (
    Approval,
    decode_approvals,
    join_approvals,
)
from srm.domain.text.documents import encode
from srm.errors import IntegrityError, UsageError


@given(st.lists(approvals, max_size=4).map(tuple))
def test_approvals_survive_their_encoding(some: tuple[Approval, ...]) -> None:
    assert decode_approvals(encode(some)) == some


@given(st.lists(approvals, max_size=4))
def test_approvals_that_two_clusters_know_are_joined_without_repeating_any(
    some: list[Approval],
) -> None:
    joined = join_approvals(some, some[1:])

    assert join_approvals(joined, some) == joined
    assert all(one in joined for one in some)
    assert [one.time_ms for one in joined] == sorted(one.time_ms for one in joined)
    assert len(joined) <= len(some)


def test_an_approval_names_somebody_and_only_numbers_that_are_some() -> None:
    with pytest.raises(UsageError, match="the approval has no name"):
        Approval("", "--yes", 1, "")
    with pytest.raises(UsageError, match="at_most is inf: use None"):
        Approval("ada", "--yes", 1, "", {"at_most": float("inf")})


def test_a_damaged_approval_is_an_error_and_no_approval() -> None:
    with pytest.raises(IntegrityError, match="approval of a move is damaged"):
        decode_approvals(b'[{"by": "ada"}]')
