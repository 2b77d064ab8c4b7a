"""A walk beside a source whose leader was elected a moment ago."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.batches import Record, marker, stored
from tests.unit.replication.resume.two_logs import OURS, Log, pairs, walked

from srm.domain.names.topics import TopicPartition
from srm.replication.mapping.start_positions import Start
from srm.replication.ports import Fetched, FetchFrom
from srm.replication.resume.source_lookahead import Comparison


class NewLeader(Log):
    """Its high watermark lags until its followers have fetched; who asks for ends waits for that.

    Kafka answers a fetch behind that watermark with nothing, and ListOffsets with an error that is
    to be tried again (KIP-207).
    """

    def __init__(self, stored_batches: Sequence[bytes], known: int) -> None:
        super().__init__(stored_batches)
        self._known = known

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        self._known = self.end
        return await super().log_range(partition)

    async def fetch(self, node: int, partitions: Sequence[FetchFrom], **options: Any) -> Fetched:
        fetched = await super().fetch(node, partitions, **options)
        [part] = fetched.partitions
        if partitions[0].offset >= self._known:
            part.records = memoryview(b"")
        part.high_watermark = part.last_stable_offset = self._known
        return fetched


@pytest.mark.parametrize("accepts_loss", [False, True])
def test_what_a_new_leader_does_not_show_yet_is_not_missing(accepts_loss: bool) -> None:
    source = [stored([Record(i, 1000 + i, b"k", b"%d" % i)]) for i in range(10)]
    copies = [
        stored([Record(1 + i, 1000 + i, b"k", b"%d" % i)], producer_id=OURS) for i in range(8)
    ]
    target = Log([marker(0, OURS, 2), *copies, marker(9, OURS, 3)])

    found = walked(
        NewLeader(source, known=3),
        target,
        Start(0, 1, frozenset({OURS})),
        Comparison(accepts_loss=accepts_loss),
    )

    assert (found.source_next, found.notes) == (8, ())
    assert pairs(found) == {1 + i: i for i in range(8)}
