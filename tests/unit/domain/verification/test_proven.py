"""What was proven counts as long as logs and map are what they were, and only that."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.names.record_headers import ClusterIds, RecordSettings, Transform
from srm.domain.offset_map.offset_map import Run
from srm.domain.text.documents import adapter, encode
from srm.domain.verification.verification import (
    MOST_STRETCHES,
    PartitionVerification,
    Proven,
    RangeResult,
    SideResult,
    found_equal,
    join_stretches,
    last_marks,
    still_proven,
    unproven,
)
from srm.domain.verification.verification_plan import RangePlan, clip, cut, newest, part_of

SHIFT = 100
RUNS = (Run(0, SHIFT, 40), Run(45, SHIFT + 41, 55))
"""Source offsets 40 to 45 are markers, so is target offset 140."""
END = 100
TARGET_END = SHIFT + 96
HELD = (END, TARGET_END)


def whole(**changes: object) -> RangePlan:
    names = ("pay", 0, "P.pay")
    plan = RangePlan(*names, 0, END, END, SHIFT, TARGET_END, TARGET_END, RUNS)
    return replace(plan, **changes)  # type: ignore[arg-type]


def proof(plan: RangePlan, time_ms: int = 1, epoch: int = 3) -> Proven:
    source = SideResult(95, "aa", epoch, plan.source_end)
    target = SideResult(95, "aa", 5, plan.target_end)
    found = found_equal(plan, RangeResult(source, target, 0, 0, None), time_ms)
    assert found is not None
    return found


def transform(**settings: object) -> Transform:
    clusters = ClusterIds("p-id", "b-id")
    return Transform(RecordSettings(**settings), clusters, "P", "pay", "P.pay")  # type: ignore[arg-type]


def half() -> Proven:
    return proof(part_of(whole(), 0, 50, SHIFT, SHIFT + 46))


def test_what_was_proven_is_not_planned_again():
    (stretch,) = still_proven([half()], whole(), HELD)

    assert stretch == half()
    assert unproven(whole(), [stretch]) == (part_of(whole(), 50, END, SHIFT + 46, TARGET_END),)


def test_without_news_nothing_is_left():
    assert unproven(whole(), still_proven([proof(whole())], whole(), HELD)) == ()


@given(st.integers(1, 40), st.data())
def test_what_is_proven_and_what_is_left_are_the_whole_whatever_was_proven(size, data):
    parts = cut(whole(), size)
    kept = [part for part in parts if data.draw(st.booleans())]
    stretches = still_proven(join_stretches(map(proof, kept)), whole(), HELD)
    left = unproven(whole(), stretches)

    covered = sorted(
        [(s.source_start, s.source_end, s.target_start, s.target_end) for s in stretches]
        + [(p.source_start, p.source_end, p.target_start, p.target_end) for p in left]
    )
    assert (covered[0][0], covered[0][2]) == (0, SHIFT)
    assert (covered[-1][1], covered[-1][3]) == (END, TARGET_END)
    for one, other in pairwise(covered):
        assert (one[1], one[3]) == (other[0], other[2])
    records = sum(s.records for s in stretches) + sum(p.runs.records for p in left)  # type: ignore[attr-defined]
    assert records == sum(run.count for run in RUNS)


@pytest.mark.parametrize(
    ("changes", "ends"),
    [
        pytest.param({}, (49, TARGET_END), id="source truncated and written again"),
        pytest.param({}, (END, SHIFT + 45), id="target truncated and written again"),
        pytest.param({}, (-1, TARGET_END), id="epoch unknown to the source"),
        pytest.param({"source_end": 49}, HELD, id="the copy has gone back"),
        pytest.param({"target_log_end": SHIFT + 45}, HELD, id="target ends before"),
        pytest.param({"runs": (Run(0, SHIFT + 1, 40), *RUNS[1:])}, HELD, id="another first pair"),
        pytest.param({"runs": (RUNS[0], Run(45, SHIFT + 42, 55))}, HELD, id="another last pair"),
        pytest.param({"runs": (Run(0, SHIFT, 39), RUNS[1])}, HELD, id="fewer pairs"),
        pytest.param({"runs": ()}, HELD, id="no map"),
        pytest.param(
            {"runs": (Run(0, SHIFT, 39), Run(40, SHIFT + 39, 1), RUNS[1])},
            HELD,
            id="another pair between the same first and last ones",
        ),
    ],
)
def test_a_proof_is_void(changes, ends):
    assert still_proven([half()], whole(**changes), ends) == ()


@pytest.mark.parametrize(
    ("changes", "is_proof"),
    [({}, True), ({"target_log_end": TARGET_END - 5}, False), ({"source_log_end": END - 5}, False)],
)
def test_a_log_that_ends_early_proves_nothing_of_what_will_stand_there(changes, is_proof):
    """Of a compacted topic it is no difference that one side does not hold a record."""
    side = SideResult(95, "aa", 3, END)
    result = RangeResult(side, side, 0, 5, None)

    assert (found_equal(whole(compacted=True, **changes), result, 1) is not None) is is_proof


@pytest.mark.parametrize(
    "changes",
    [
        {"transform": transform(exclude_headers=("trace.*",))},
        {"transform": transform(provenance=True, provenance_name="__from")},
        {"shared": True},
        {"committed": False},
    ],
)
def test_what_was_proven_under_other_settings_is_compared_again(changes):
    before = whole(transform=transform())
    (kept,) = still_proven([proof(before)], before, HELD)

    assert kept == Proven(**asdict(kept))
    assert still_proven([kept], whole(transform=transform()), HELD) == (kept,)
    assert still_proven([kept], replace(before, **changes), HELD) == ()


def test_stretches_proven_under_different_settings_stay_apart():
    first = part_of(whole(), 0, 50, SHIFT, SHIFT + 46)
    rest = part_of(whole(shared=True), 50, END, SHIFT + 46, TARGET_END)

    assert len(join_stretches([proof(first), proof(rest)])) == 2


def test_a_weaker_comparison_proves_nothing_where_more_is_compared_now():
    without_times = replace(half(), timestamps=False)
    compacted = replace(half(), compacted=True)

    assert still_proven([without_times], whole(), HELD) == ()
    assert still_proven([without_times], whole(timestamps=False), HELD) == (without_times,)
    assert still_proven([half()], whole(timestamps=False), HELD) == (half(),)
    assert still_proven([compacted], whole(), HELD) == ()
    assert still_proven([compacted], whole(compacted=True), HELD) == (compacted,)
    assert still_proven([half()], whole(compacted=True), HELD) == (half(),)


def test_records_without_a_leader_epoch_cannot_be_known_again():
    unmarked = proof(part_of(whole(), 0, 50, SHIFT, SHIFT + 46), epoch=-1)

    assert still_proven([unmarked], whole(), HELD) == ()


def test_another_decision_on_what_is_left_on_the_source_makes_it_void():
    decided = whole(decided=((10, 12), (45, 60)))
    parts = [part_of(decided, 0, 48, SHIFT, SHIFT + 44)]
    parts.append(part_of(decided, 48, 50, SHIFT + 44, SHIFT + 46))

    (stretch,) = join_stretches(map(proof, parts))

    assert stretch.decided == ((10, 12), (45, 50))
    assert still_proven([stretch], decided, HELD) == (stretch,)
    assert adapter(Proven).validate_json(encode(stretch)) == stretch
    assert still_proven([stretch], whole(decided=((45, 60),)), HELD) == ()
    assert still_proven([half()], decided, HELD) == ()


def test_what_retention_has_taken_is_proven_no_more_and_the_rest_is():
    runs = clip(RUNS, 20, END)
    shorter = whole(source_start=20, target_start=SHIFT + 20, runs=runs)

    (left,) = still_proven([half()], shorter, HELD)

    assert (left.source_start, left.target_start, left.records) == (20, SHIFT + 20, 25)
    assert (left.source_end, left.target_end) == (50, SHIFT + 46)
    assert (left.first, left.last) == ((20, SHIFT + 20), (49, SHIFT + 45))
    assert unproven(shorter, [left]) == (part_of(shorter, 50, END, SHIFT + 46, TARGET_END),)


def test_a_shortened_proof_is_void_where_the_map_has_another_last_pair():
    shorter = whole(source_start=46, target_start=SHIFT + 43, runs=(Run(46, SHIFT + 43, 54),))

    assert still_proven([half()], shorter, HELD) == ()


def test_a_proof_that_retention_has_shortened_is_void_once_the_map_changes_between_its_ends():
    runs = clip(RUNS, 20, END)
    shorter = whole(source_start=20, target_start=SHIFT + 20, runs=runs)
    left = still_proven([half()], shorter, HELD)
    changed = replace(shorter, runs=(Run(20, SHIFT + 20, 19), Run(40, SHIFT + 39, 1), runs[1]))

    assert still_proven(left, shorter, HELD) == left
    assert still_proven(left, changed, HELD) == ()


def test_a_proof_of_a_version_that_did_not_look_between_its_ends_is_void():
    told = asdict(half())
    del told["pairs"]

    assert still_proven([Proven(**told)], whole(), HELD) == ()


def test_what_is_gone_as_a_whole_is_forgotten():
    gone = whole(source_start=50, target_start=SHIFT + 46, runs=clip(RUNS, 50, END))

    assert still_proven([half()], gone, HELD) == ()


def test_stretches_that_touch_are_one_with_the_times_of_both():
    first, second = (
        proof(part_of(whole(), 0, 50, SHIFT, SHIFT + 46), 1),
        proof(part_of(whole(), 50, END, SHIFT + 46, TARGET_END), 7),
    )

    (both,) = join_stretches([second, first])

    assert both == replace(proof(whole(), 1), time_ms=7)
    assert last_marks([first, second]) == ((3, END), (5, TARGET_END))


def test_only_the_latest_of_many_stretches_are_kept():
    apart = [replace(half(), source_start=n * 10, source_end=n * 10 + 5) for n in range(100)]

    assert join_stretches(apart) == tuple(apart[-MOST_STRETCHES:])


def test_the_newest_records_begin_within_a_stretch_that_covers_them():
    narrow = newest(whole(), 70)

    assert narrow.source_start == 25
    assert unproven(narrow, [half()]) == (part_of(whole(), 50, END, SHIFT + 46, TARGET_END),)


def test_a_result_tells_how_far_it_is_proven_and_survives_its_record():
    names = ("pay", 0, "P.pay", "equal", 1)
    result = PartitionVerification(
        *names, earlier_records=45, earlier_ms=86_400_000, proven=(proof(whole()),)
    )

    assert result.proof == (
        "proven to source offset 100, 45 records of them earlier (1970-01-02 00:00:00 UTC)"
    )
    assert PartitionVerification.decode(result.value()) == result
    apart = replace(half(), source_start=60, source_end=70)
    assert replace(result, earlier_records=0, proven=(half(), apart)).proof == (
        "source offsets 0 to 49, 60 to 69 are proven"
    )


def test_a_record_of_a_version_without_proofs_has_proven_nothing():
    old = (
        b'{"topic":"pay","partition":0,"remote_topic":"P.pay","outcome":"equal","time_ms":1,'
        b'"source_start":0,"source_end":9,"target_start":0,"target_end":9,"source_records":9,'
        b'"target_records":9,"source_hash":"a","target_hash":"a","foreign":0,"one_sided":0,'
        b'"difference":null,"reason":""}'
    )

    decoded = PartitionVerification.decode(old)

    assert (decoded.outcome, decoded.proven, decoded.proof) == ("equal", (), "")
