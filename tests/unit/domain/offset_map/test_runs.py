"""The fingerprint of runs tells which pairs they hold, and nothing else about them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from srm.domain.offset_map.runs import FINGERPRINTS, Run, Runs
from srm.domain.verification.verification_plan import clip


@st.composite
def _runs(draw: st.DrawFn) -> Runs:
    source = target = draw(st.integers(0, 1 << 50))
    made = []
    for gap, hole, count in draw(st.lists(st.tuples(*[st.integers(0, 3)] * 2, st.integers(1, 9)))):
        source, target = source + gap, target + hole
        made.append(Run(source, target, count))
        source, target = source + count, target + count
    return Runs.of(made)


def _pairs(runs: Runs) -> set[tuple[int, int]]:
    return {(r.source_start + i, r.target_start + i) for r in runs for i in range(r.count)}


@given(_runs(), _runs())
def test_the_same_pairs_and_only_they_have_the_same_fingerprint(one: Runs, other: Runs) -> None:
    assert (one.fingerprint == other.fingerprint) is (_pairs(one) == _pairs(other))
    assert 0 <= one.fingerprint < FINGERPRINTS


@given(_runs(), st.integers(0, 60))
def test_the_fingerprint_of_a_whole_is_the_sum_of_those_of_its_parts(runs: Runs, at: int) -> None:
    first = runs[0].source_start if len(runs) else 0
    parts = clip(runs, 0, first + at), clip(runs, first + at, 1 << 60)

    assert sum(part.fingerprint for part in parts) % FINGERPRINTS == runs.fingerprint


def test_one_pair_that_is_moved_between_two_others_makes_another_fingerprint() -> None:
    straight = Runs.of([Run(0, 0, 10), Run(10, 12, 10)])
    bent = Runs.of([Run(0, 0, 9), Run(9, 10, 1), Run(10, 12, 10)])

    assert straight.fingerprint != bent.fingerprint
