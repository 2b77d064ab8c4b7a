"""Which of two records of a move is its state, whichever cluster has counted further."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from srm.domain.moves.progress import DECIDED, HELD, MoveProgress, MoveStep

ORDER: tuple[MoveStep, ...] = (
    "planned", "holding", "held", "applied", "going", "released", "gone", "verified", "reported"
)  # fmt: skip
records = st.builds(
    MoveProgress, st.just("m"), st.integers(0, 3), st.sampled_from(ORDER), st.integers(0, 3)
)


def furthest(*some: MoveProgress) -> MoveProgress:
    return max(some, key=lambda one: one.rank)


@given(records, records, records)
def test_clusters_are_merged_to_the_same_state_in_whatever_order(a, b, c):
    ranks = {furthest(*order).rank for order in permutations((a, b, c))}

    assert ranks == {furthest(furthest(a, b), c).rank} == {furthest(a, furthest(b, c)).rank}


@given(st.sampled_from(ORDER[:-1]), st.integers(0, 9), st.integers(0, 9))
def test_within_an_attempt_the_later_step_wins_however_often_the_other_was_written(step, a, b):
    later = ORDER[ORDER.index(step) + 1]

    before, after = MoveProgress("m", a, step, 7), MoveProgress("m", b, later, 7)
    assert furthest(before, after) == after


def test_a_release_of_the_target_overrules_the_intent_on_the_source_and_a_decision_both():
    intent = MoveProgress("m", 7, "going", 2)
    released, gone = MoveProgress("m", 6, "released", 2), MoveProgress("m", 5, "gone", 2)

    assert furthest(intent, released) == released
    assert furthest(intent, released, gone) == gone


def test_the_intent_is_no_decision():
    assert "going" in HELD
    assert "going" not in DECIDED
    assert HELD.isdisjoint(DECIDED)


@given(records, records)
def test_a_later_attempt_overrules_whatever_an_earlier_one_has_come_to(a, b):
    if a.attempt != b.attempt:
        assert furthest(a, b).attempt == max(a.attempt, b.attempt)
