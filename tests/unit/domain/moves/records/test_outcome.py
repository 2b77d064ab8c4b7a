"""The outcome of a disaster survives being stored."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.moves.disaster import Choice, GroupOutcome, Outcome
from srm.errors import IntegrityError

counts = st.dictionaries(st.text(max_size=9), st.integers(0, 2**40), max_size=3)
outcomes = st.builds(
    Outcome,
    groups=st.dictionaries(st.text(max_size=9), st.builds(GroupOutcome, counts, counts)),
    choices=st.dictionaries(st.text(max_size=9), st.sampled_from(get_args(Choice))),
)


@given(outcomes)
def test_an_outcome_is_read_back_as_it_was_written(outcome: Outcome) -> None:
    assert Outcome.decode(outcome.value()) == outcome


def test_what_is_no_outcome_is_told() -> None:
    with pytest.raises(IntegrityError, match="damaged"):
        Outcome.decode(b"{}")
