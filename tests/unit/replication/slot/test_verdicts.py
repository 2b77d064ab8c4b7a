"""What is said of a partition that cannot go on."""

from __future__ import annotations

import pytest

from srm.domain.replication_records import AssignedPartition
from srm.errors import FencedError, UnavailableError
from srm.replication import codes
from srm.replication.slot import verdicts
from srm.replication.slot.partition import PartitionCopy
from srm.replication.slot.resume import Start

ASSIGNED = AssignedPartition("T", 0, "A" * 21 + "g", "P.T", "B" * 21 + "g")


@pytest.mark.parametrize(
    ("source_end", "told"), [(9, "from offset 5 to 9 or later"), (5, "created again; the driver")]
)
def test_a_topic_that_is_gone_says_which_records_went_with_it(source_end: int, told: str) -> None:
    copy = PartitionCopy(ASSIGNED, Start(5, 6))
    copy.source_end = source_end

    verdict = verdicts.judge_fetch(copy, min(codes.TOPIC_GONE), "", "P")

    assert isinstance(verdict, verdicts.Stop)
    assert told in verdict.reason
    assert not verdict.retriable


def test_an_error_of_the_network_is_tried_again_and_a_fence_is_waited_out() -> None:
    assert verdicts.judge_error(UnavailableError("away")) == verdicts.Stop("away")
    assert verdicts.judge_error(FencedError("mine")) == verdicts.Fenced("mine")


def test_a_source_that_is_led_elsewhere_is_asked_for_its_leaders() -> None:
    verdict = verdicts.judge_fetch(PartitionCopy(ASSIGNED, Start(5, 6)), 6, "", "P")

    assert verdict == verdicts.Stop("fetch error 6", stale_leader="source")


def test_an_offset_out_of_range_raises_a_doubt_and_decides_nothing() -> None:
    copy = PartitionCopy(ASSIGNED, Start(5, 6))

    assert verdicts.judge_fetch(copy, codes.OFFSET_OUT_OF_RANGE, "", "P") == verdicts.Doubt()
