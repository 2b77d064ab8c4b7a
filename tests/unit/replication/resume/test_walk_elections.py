"""Walks of logs whose leaders were elected a moment ago, or since the copies were written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.batches import Record, marker, stored
from tests.unit.replication.resume.two_logs import OURS, Log, in_epoch, pairs, walked

from srm.domain.names.topics import TopicPartition
from srm.replication.batches.batch import rewrite, seal
from srm.replication.mapping.starts import Start
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


@pytest.mark.parametrize(
    ("source_epoch", "target_epoch", "is_passed"),
    [
        pytest.param(0, 0, True, id="the same leaders"),
        pytest.param(1, 0, False, id="the source may have lost what was copied"),
        pytest.param(0, 1, False, id="the copy may have been on its way to the former leader"),
    ],
)
def test_no_record_is_passed_unproven_where_a_leader_was_elected(
    source_epoch: int, target_epoch: int, is_passed: bool
) -> None:
    """A copy equals a later record; those between were refused, or the copy is of another one."""
    source = [
        in_epoch(source_epoch if i > 1 else 0, stored([Record(i, 1000 + i, None, b"%d" % i)]))
        for i in range(6)
    ]
    copies = [(1, 0, 0), (2, 1, 0), (3, 4, target_epoch)]
    target = [
        in_epoch(epoch, stored([Record(at, 1000 + i, None, b"%d" % i)], producer_id=OURS))
        for at, i, epoch in copies
    ]
    claims = in_epoch(0, marker(0, OURS, 2)), in_epoch(target_epoch, marker(4, OURS, 3))

    found = walked(
        Log(source),
        Log([claims[0], *target, claims[1]]),
        Start(0, 1, frozenset({OURS})),
        Comparison(accepts_loss=True),
    )

    assert found.source_next == (5 if is_passed else 2)
    assert pairs(found) == {1: 0, 2: 1} | ({3: 4} if is_passed else {})


@pytest.mark.parametrize(("sequence", "source_next"), [(0, 4), (2, 1)])
def test_no_record_is_passed_for_a_batch_whose_claim_wrote_more_before_it(
    sequence: int, source_next: int
) -> None:
    """The target lost its end while the batch was on its way; it is of the same leader now."""
    source = [Record(i, 7, b"k", value) for i, value in enumerate([b"a", b"b", b"a", b"c"])]
    batch = bytearray(stored([Record(0, 7, b"k", b"a"), Record(1, 7, b"k", b"c")]))
    rewrite(memoryview(batch), OURS, 0, sequence)
    seal(memoryview(batch))

    found = walked(
        Log([in_epoch(0, stored(source))]),
        Log([in_epoch(0, bytes(batch)), in_epoch(0, marker(2, OURS, 3))]),
        Start(0, 0, frozenset({OURS}), cut=True),
        Comparison(accepts_loss=True),
    )

    assert found.source_next == source_next
