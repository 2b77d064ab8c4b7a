"""The outcome of a disaster survives being stored."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.moves.disaster import Choice, GroupOutcome, Outcome, stored_outcome
from srm.errors import IntegrityError

counts = st.dictionaries(st.text(max_size=9), st.integers(0, 2**40), max_size=3)
outcomes = st.builds(
    Outcome,
    groups=st.dictionaries(st.text(max_size=9), st.builds(GroupOutcome, counts, counts)),
    choices=st.dictionaries(st.text(max_size=9), st.sampled_from(get_args(Choice))),
)


@given(outcomes)
def test_an_outcome_is_read_back_as_it_was_written(outcome: Outcome) -> None:
    stored = kept(outcome)
    assert Outcome.decode(stored_outcome(stored, outcome.move_id) or b"") == outcome


def kept(outcome: Outcome, before: dict[str, bytes] | None = None) -> dict[str, bytes]:
    rows = {**(before or {}), **{k.decode(): v for k, v in outcome.to_records().items()}}
    return {name: value for name, value in rows.items() if value is not None}


def outcome_of(groups: int) -> Outcome:
    reads = {f"group-{number}": GroupOutcome({"T-0": number}, {}) for number in range(groups)}
    return Outcome("m1", "P->B", "same", 7, "ann", groups=reads)


def test_an_outcome_of_any_size_is_cut_and_a_shorter_one_replaces_it() -> None:
    large, small = outcome_of(30_000), outcome_of(3)
    stored = kept(large)

    assert max(map(len, stored.values())) <= 500_000
    assert len(stored) > 2
    assert Outcome.decode(stored_outcome(stored, "m1") or b"") == large
    assert Outcome.decode(stored_outcome(kept(small, stored), "m1") or b"") == small


def test_an_outcome_that_was_written_in_part_counts_for_nothing() -> None:
    parts = list(kept(outcome_of(30_000)).items())

    assert stored_outcome(dict(parts[:-1]), "m1") is None
    with pytest.raises(IntegrityError):
        Outcome.decode(stored_outcome(dict(parts[1:]), "m1") or b"")


def test_what_is_no_outcome_is_told() -> None:
    with pytest.raises(IntegrityError, match="damaged"):
        Outcome.decode(b"{}")
