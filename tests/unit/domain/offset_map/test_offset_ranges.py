"""Offset ranges are cut without losing or repeating an offset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.offset_map.runs import OffsetRange, split_ranges
from srm.errors import UsageError


@given(st.integers(0, 500), st.integers(-5, 500), st.integers(1, 600))
def test_the_parts_cover_each_offset_once_and_keep_to_the_size(start, length, size):
    whole = OffsetRange("t", 1, start, start + length)

    parts = split_ranges([whole], size)

    assert [o for p in parts for o in range(p.start, p.end)] == list(range(start, start + length))
    assert all(0 < part.size <= size for part in parts)


def test_a_size_of_zero_is_refused():
    with pytest.raises(UsageError, match="parts of 0"):
        split_ranges([OffsetRange("t", 0, 0, 1)], 0)
