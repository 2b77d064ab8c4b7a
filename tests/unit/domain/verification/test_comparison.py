"""Two copies compare equal exactly when they are, and the first difference is named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from srm.domain.names.record_headers import ClusterIds, RecordSettings, Transform
from srm.domain.offset_map.offset_map import OffsetMap, Position, Run
from srm.domain.verification.compared_record import ComparedRecord, frame
from srm.domain.verification.comparison import compare
from srm.domain.verification.verification import Difference, PartitionVerification, merge
from srm.domain.verification.verification_plan import RangePlan, cut, plan_partition
from srm.errors import IntegrityError

SHIFT = 100
COUNT = 20

parts = st.none() | st.binary(max_size=3)
headers = st.lists(st.tuples(st.text(max_size=2), parts), max_size=2).map(tuple)
contents = st.tuples(parts, parts, headers, st.integers(-1, 3))


def record(offset: int, content: int) -> ComparedRecord:
    return ComparedRecord(
        offset, b"k%d" % content, b"v%d" % content, (("h", b"%d" % content),), content
    )


def source_log() -> list[ComparedRecord]:
    return [record(offset, offset) for offset in range(COUNT)]


def target_log(order: list[int]) -> list[ComparedRecord]:
    return [record(SHIFT + place, content) for place, content in enumerate(order)]


def logs(
    source: tuple[int, int],
    target: tuple[int, int],
    decided: tuple[tuple[int, int], ...] = (),
) -> RangePlan:
    """Return the plan of two whole logs, by their starts and ends."""
    ends = (*source, source[1], *target, target[1])
    return RangePlan("pay", 0, "P.pay", *ends, (), decided=decided)


def plan_for(target_records: int = COUNT, *, compacted: bool = False) -> RangePlan:
    offset_map = OffsetMap.of([Run(0, SHIFT, COUNT)], Position(COUNT, SHIFT + COUNT, COUNT))
    end = SHIFT + target_records
    plan = plan_partition(logs((0, COUNT), (SHIFT, end)), offset_map, end)
    assert plan is not None
    return replace(plan, compacted=compacted)


def verify(
    plan: RangePlan, source: list[ComparedRecord], target: list[ComparedRecord], size: int = 1000
) -> PartitionVerification:
    results = [
        compare(
            part,
            [r for r in source if part.source_start <= r.offset < part.source_end],
            [r for r in target if part.target_start <= r.offset < part.target_end],
        )
        for part in cut(plan, size)
    ]
    return merge(plan, results, time_ms=1)


def difference(source: int | None, target: int | None, *kinds: str) -> Difference:
    return Difference("pay", 0, source, target, kinds)  # type: ignore[arg-type]


@given(contents, contents)
@example((b"a", b"", (), 0), (b"", b"a", (), 0))
@example((b"", None, (), 0), (None, b"", (), 0))
@example((None, None, (("a", b"b"),), 0), (None, None, (("ab", b""),), 0))
def test_two_contents_have_the_same_frame_only_if_they_are_equal(one, other):
    assert (frame(ComparedRecord(1, *one)) == frame(ComparedRecord(2, *other))) == (one == other)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_exact_copy_is_equal_however_it_is_cut(size):
    result = verify(plan_for(), source_log(), target_log(list(range(COUNT))), size)

    assert result.outcome == "equal"
    assert (result.source_records, result.target_records) == (COUNT, COUNT)
    assert result.source_hash == result.target_hash
    assert result.difference is None


@pytest.mark.parametrize(
    ("changed", "kinds"),
    [
        ({"key": None}, ("key",)),
        ({"value": b"other"}, ("value",)),
        ({"value": None}, ("value",)),
        ({"headers": ()}, ("headers",)),
        ({"timestamp_ms": 99}, ("timestamp",)),
        ({"key": b"", "timestamp_ms": 99}, ("key", "timestamp")),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("place", [0, 8, COUNT - 1])
def test_one_changed_field_is_named_with_both_offsets(changed, kinds, size, place):
    target = target_log(list(range(COUNT)))
    target[place] = target[place]._replace(**changed)

    result = verify(plan_for(), source_log(), target, size)

    assert result.outcome == "different"
    assert result.difference == difference(place, SHIFT + place, *kinds)
    assert result.source_hash != result.target_hash


def test_timestamps_are_not_compared_where_the_target_stamps_records_itself():
    target = [r._replace(timestamp_ms=5) for r in target_log(list(range(COUNT)))]

    assert verify(replace(plan_for(), timestamps=False), source_log(), target).outcome == "equal"


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ([0, 1, 2, *range(4, COUNT)], difference(3, SHIFT + 3, "missing")),
        ([0, 1, 2, *range(6, COUNT)], difference(3, SHIFT + 3, "missing")),
        ([0, 1, 2, 2, *range(3, COUNT)], difference(3, SHIFT + 3, "extra")),
        ([0, 1, 2, 77, 78, *range(3, COUNT)], difference(3, SHIFT + 3, "extra")),
        ([0, 1, 2, 4, 3, *range(5, COUNT)], difference(3, SHIFT + 3, "order")),
        ([0, 1, 5, 4, 3, 2, *range(6, COUNT)], difference(2, SHIFT + 2, "order")),
        (list(range(COUNT - 1)), difference(COUNT - 1, SHIFT + COUNT - 1, "missing")),
        ([*range(COUNT), 0], difference(None, SHIFT + COUNT, "foreign")),
    ],
    ids=["drop", "drop 3", "repeat", "insert", "swap", "reverse", "drop last", "append"],
)
def test_a_copy_that_is_shifted_or_reordered_is_named_so(order, expected):
    result = verify(plan_for(len(order)), source_log(), target_log(order))

    assert result.outcome == "different"
    assert result.difference == expected
    assert result.source_hash != result.target_hash


def test_a_source_record_outside_the_map_is_missing():
    offset_map = OffsetMap.of([Run(0, 0, 2), Run(3, 2, 2)], Position(5, 4, 5))
    plan = plan_partition(logs((0, 5), (0, 4)), offset_map, 4)
    assert plan is not None
    target = [record(place, content) for place, content in enumerate([0, 1, 3, 4])]

    result = verify(plan, [record(o, o) for o in range(5)], target)

    assert result.difference == difference(2, None, "missing")


def test_a_target_record_between_runs_is_foreign_and_markers_are_nothing():
    offset_map = OffsetMap.of([Run(0, 0, 2), Run(2, 3, 2)], Position(4, 5, 4))
    plan = plan_partition(logs((0, 4), (0, 5)), offset_map, 5)
    assert plan is not None
    source = [record(o, o) for o in range(4)]
    copies = [record(0, 0), record(1, 1), record(3, 2), record(4, 3)]

    assert verify(plan, source, copies).outcome == "equal"
    result = verify(plan, source, sorted([*copies, record(2, 50)]))
    assert (result.foreign, result.difference) == (1, difference(None, 2, "foreign"))


def hop(one: ComparedRecord, place: str) -> ComparedRecord:
    return one._replace(headers=(*one.headers, ("__replicator_id", f"{place},pay,1".encode())))


def test_in_a_shared_copy_only_a_second_copy_of_the_flow_is_foreign():
    transform = Transform(RecordSettings(provenance=True), ClusterIds("a", "c"), "A", "pay", "pay")
    offset_map = OffsetMap.of([Run(0, 0, 2), Run(2, 4, 2)], Position(4, 7, 4))
    plan = plan_partition(logs((0, 4), (0, 7)), offset_map, 7)
    assert plan is not None
    shared = replace(plan, transform=transform, shared=True)
    source = [record(o, o) for o in range(4)]
    others = [record(2, 50), hop(record(3, 60), "b"), record(6, 70)]
    ours = [hop(record(*pair), "a") for pair in ((0, 0), (1, 1), (4, 2), (5, 3))]
    copies = sorted([*ours, *others])

    result = verify(shared, source, copies)
    assert (result.outcome, result.source_records, result.target_records) == ("equal", 4, 4)
    copies[2] = hop(copies[2], "a")
    assert verify(shared, source, copies).difference == difference(None, 2, "foreign")


def test_a_copy_made_twice_under_a_shared_name_is_foreign_also_without_headers_that_show_it():
    transform = Transform(RecordSettings(), ClusterIds("", ""), "A", "pay", "pay")
    plan = plan_partition(logs((0, 2), (0, 3)), OffsetMap.of([Run(0, 1, 2)], Position(2, 3, 2)), 3)
    assert plan is not None
    shared = replace(plan, transform=transform, shared=True)
    target = [record(0, 0), record(1, 0), record(2, 1)]

    result = verify(shared, [record(0, 0), record(1, 1)], target)

    assert result.difference == difference(None, 0, "foreign")


def test_source_records_that_the_flow_does_not_copy_are_not_missing():
    settings = RecordSettings(provenance=True, exclude_headers=("h.*",))
    transform = Transform(settings, ClusterIds("a", "c"), "A", "pay", "pay")
    offset_map = OffsetMap.of([Run(0, 0, 1), Run(3, 1, 1)], Position(4, 2, 4))
    plan = plan_partition(logs((0, 4), (0, 2)), offset_map, 2)
    assert plan is not None
    plan = replace(plan, transform=transform)
    first, last = (record(o, o)._replace(headers=()) for o in (0, 3))
    source = [first, record(1, 1), hop(record(2, 2)._replace(headers=()), "c"), last]

    assert verify(plan, source, [first, last._replace(offset=1)]).outcome == "equal"
    source[2] = hop(source[2]._replace(headers=()), "b")
    result = verify(plan, source, [first, last._replace(offset=1)])
    assert result.difference == difference(2, None, "missing")


def test_in_compacted_topics_a_record_on_one_side_only_is_counted_not_blamed():
    source = [r for r in source_log() if r.offset != 3]
    target = [r for r in target_log(list(range(COUNT))) if r.offset != SHIFT + 7]

    result = verify(plan_for(compacted=True), source, target, size=5)

    assert (result.outcome, result.one_sided) == ("equal", 2)
    assert result.source_hash == result.target_hash
    assert verify(plan_for(), source, target).difference == difference(3, SHIFT + 3, "extra")


@given(st.permutations(range(6)), st.integers(1, 7))
def test_copies_are_equal_exactly_when_they_hold_the_same_in_the_same_order(order, size):
    offset_map = OffsetMap.of([Run(0, 0, 6)], Position(6, 6, 6))
    plan = plan_partition(logs((0, 6), (0, 6)), offset_map, 6)
    assert plan is not None
    source = [record(o, o) for o in range(6)]
    target = [record(place, content) for place, content in enumerate(order)]

    result = verify(plan, source, target, size)

    same = list(order) == list(range(6))
    assert (result.outcome == "equal") == same == (result.source_hash == result.target_hash)
    if not same:
        first = next(i for i, content in enumerate(order) if i != content)
        assert result.difference is not None
        assert (result.difference.source_offset, result.difference.target_offset) == (first, first)


def test_a_result_survives_its_codec_and_damage_is_an_integrity_error():
    target = target_log([0, 2, 1, *range(3, COUNT)])
    result = verify(plan_for(), source_log(), target)

    assert result.key() == b"pay-0"
    assert PartitionVerification.decode(result.value()) == result
    assert str(result.difference) == "pay-0 source offset 1, target offset 101: order"
    with pytest.raises(IntegrityError, match="damaged"):
        PartitionVerification.decode(b'{"topic": 1}')


@given(st.integers(0, COUNT - 1), st.integers(1, 5), st.integers(1, COUNT))
def test_what_was_left_on_the_source_by_decision_is_not_compared_and_told(
    first: int, size: int, part: int
) -> None:
    end = min(first + size, COUNT)
    copied = COUNT - (end - first)
    offset_map = OffsetMap.of(
        [Run(0, SHIFT, first), Run(end, SHIFT + first, COUNT - end)],
        Position(COUNT, SHIFT + copied, COUNT),
    )
    log = (SHIFT, SHIFT + copied)
    target = target_log([n for n in range(COUNT) if not first <= n < end])
    results = {}
    for decided in ((), ((first, end),)):
        plan = plan_partition(logs((0, COUNT), log, decided), offset_map, log[1])
        if plan is None:
            assert copied == 0
            return
        results[decided] = verify(plan, source_log(), target, part)

    assert results[()].outcome == "different"
    assert results[(first, end),].outcome == "equal"
    assert results[(first, end),].source_records == copied
    assert f"source offsets {first} to {end - 1} were excluded" in results[(first, end),].reason


@given(st.integers(0, COUNT - 1), st.integers(1, 5), st.integers(1, COUNT))
def test_what_the_source_has_lost_by_a_settled_return_is_not_compared_and_told(
    cut_at: int, lost: int, part: int
) -> None:
    """The map ends before the copies of what was lost, and continues after them."""
    after = SHIFT + cut_at + lost
    runs = [Run(0, SHIFT, cut_at)] * bool(cut_at) + [Run(cut_at, after, COUNT - cut_at)]
    offset_map = OffsetMap.of(runs, Position(COUNT, after + COUNT - cut_at, COUNT))
    log = (SHIFT, SHIFT + COUNT + lost)
    target = target_log([*range(cut_at), *([77] * lost), *range(cut_at, COUNT)])
    results = {}
    for only in ((), ((cut_at, after),)):
        plan = plan_partition(logs((0, COUNT), log), offset_map, log[1], cuts=only)
        assert plan is not None
        results[only] = verify(plan, source_log(), target, part)

    left_out = results[(cut_at, after),]
    assert results[()].outcome == "different" or cut_at == 0
    assert (left_out.outcome, left_out.source_records) == ("equal", COUNT)
    assert "are lost on the source" in left_out.reason


def test_a_copy_that_has_no_original_to_be_mapped_to_is_one_sided() -> None:
    """Compaction of the source was faster than the map; another program's record is foreign."""
    source, target = source_log(), target_log(list(range(COUNT)))
    own, other = record(SHIFT + COUNT, 5), record(SHIFT + COUNT + 1, 6)
    plan = replace(plan_for(COUNT + 2, compacted=True), target_end=SHIFT + COUNT + 2)
    known = replace(plan, unmapped=((SHIFT + COUNT, SHIFT + COUNT + 1),))

    found = verify(known, source, [*target, own])
    assert (found.outcome, found.one_sided, found.foreign) == ("equal", 1, 0)
    found = verify(known, source, [*target, own, other])
    assert found.difference == difference(None, SHIFT + COUNT + 1, "foreign")
    assert (found.one_sided, found.foreign) == (1, 1)
    assert verify(plan, source, [*target, own]).outcome == "different"
