"""The residue is counted as it comes."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from srm.domain.recovery.source_return import Counting


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(-1, 99)), max_size=30),
    st.lists(st.integers(0, 130), max_size=5),
    st.integers(1, 7),
)
@example([(1, -1), (1, 5)], [], 1)
def test_records_are_counted_before_each_mark_however_they_arrive(
    steps: list[tuple[int, int]], marks: list[int], size: int
) -> None:
    records, at = [], 0
    for step, time_ms in steps:
        at += step
        records.append((at, time_ms))
    counting = Counting(marks, until_ms=50)

    for first in range(0, len(records), size):
        some = records[first : first + size]
        counting.take([offset for offset, _ in some], [time_ms for _, time_ms in some])

    found = counting
    assert found.records == len(records)
    assert found.below == {m: sum(offset < m for offset, _ in records) for m in marks}
    assert found.late == sum(time_ms > 50 for _, time_ms in records)
    times = [time_ms for _, time_ms in records if time_ms != -1]  # of records without one
    assert (found.first_ms, found.last_ms) == (min(times, default=None), max(times, default=None))
