"""What is told of a partition that cannot go on."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from srm.domain.replication_records import AssignedPartition
from srm.replication import codes
from srm.replication.slot.partition import PartitionCopy, Phase
from srm.replication.slot.recovery import Trouble
from srm.replication.slot.resume import Start

ASSIGNED = AssignedPartition("T", 0, "A" * 21 + "g", "P.T", "B" * 21 + "g")


class Slot:
    def unplace(self, copy: PartitionCopy) -> None:
        """Nothing is fetched anyway."""


@pytest.mark.parametrize(
    ("source_end", "told"), [(9, "from offset 5 to 9 or later"), (5, "created again; the driver")]
)
def test_a_topic_that_is_gone_says_which_records_went_with_it(source_end: int, told: str) -> None:
    copy = PartitionCopy(ASSIGNED, Start(5, 6))
    copy.source_end = source_end

    async def fetch_fails() -> None:
        trouble = Trouble(cast("Any", Slot()), *cast("Any", (None, None, None)))
        trouble.on_fetch(copy, min(codes.TOPIC_GONE), "")

    asyncio.run(fetch_fails())

    assert copy.phase is Phase.STOPPED
    assert told in copy.reason
