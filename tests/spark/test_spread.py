"""Work spread over Spark tasks gives what one loop gives, on a classic session."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.errors import ConflictError
from srm.spark.jobs import cores, cut, spread

pytestmark = pytest.mark.spark


@given(st.lists(st.integers(), min_size=1), st.integers(1, 12))
def test_each_item_is_in_one_part_in_order_and_parts_are_alike_in_size(items, parts):
    dealt = cut(items, parts)

    assert [item for part in dealt for item in part] == items
    assert len(dealt) == min(parts, len(items))
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


def test_results_come_in_the_order_of_the_items(spark):
    def pairs(part: Iterable[int]) -> Iterator[tuple[int, str]]:
        for item in part:
            yield item, "x" * item
            yield -item, ""

    found = spread(spark, range(50), pairs, tasks=7)

    assert found == [pair for item in range(50) for pair in ((item, "x" * item), (-item, ""))]


def test_the_parts_run_in_the_workers_of_spark(spark):
    assert os.getpid() not in spread(spark, range(4), lambda part: [os.getpid() for _ in part])


def test_without_items_nothing_is_started():
    assert spread(None, [], list) == []  # type: ignore[arg-type]


def test_there_are_as_many_cores_as_the_session_was_given(spark):
    assert cores(spark) == 2


def test_an_error_of_ours_comes_back_as_itself(spark):
    def fail(part: Iterable[int]) -> Iterator[int]:
        for item in part:
            if item == 3:
                raise ConflictError("pay-0 [0, 5) is no longer in the log")
            yield item

    with pytest.raises(ConflictError, match=r"^pay-0 \[0, 5\) is no longer in the log$"):
        spread(spark, range(5), fail)
