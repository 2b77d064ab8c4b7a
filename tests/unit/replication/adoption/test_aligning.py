"""Both logs of a copy are read whole, and only what is committed on the target is a copy."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import pytest
from tests.batches import Record, marker, stored
from tests.unit.replication.resume.two_logs import Log

from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.alignment import AlignedCopy
from srm.errors import UnavailableError
from srm.replication.adoption import LogColumns, align, check_decided
from srm.replication.batches.batch import batches, seal
from srm.replication.log_reader import LogReader
from srm.replication.ports import Fetched, FetchFrom
from srm.replication.resume.source_lookahead import Comparison

WRITER = 7
COLUMNS = LogColumns(Comparison(()), with_time=True, with_keys=False)


class ServedLog(Log):
    """A log with transactions, whose leader may send nothing from an offset on."""

    alias = "B"
    stable_end = sys.maxsize
    silent_from = sys.maxsize
    aborted: tuple[tuple[int, int, int], ...] = ()
    """Producer id, first offset and marker of each aborted transaction."""

    async def local_start(self, partition: TopicPartition) -> int:
        is_late = self.silent_from < sys.maxsize
        return self.end if is_late else await super().local_start(partition)

    async def fetch(self, node: int, partitions: Sequence[FetchFrom], **options: Any) -> Fetched:
        fetched = await super().fetch(node, partitions, **options)
        [part] = fetched.partitions
        stable = min(self.stable_end, self.end) if options["read_committed"] else -1
        limit = min(self.silent_from, stable if stable >= 0 else self.end)
        sent = takewhile(lambda batch: batch.base_offset < limit, batches(part.records))
        part.records = memoryview(bytearray(b"".join(bytes(batch.view) for batch in sent)))
        part.last_stable_offset = stable
        if stable >= 0:
            ended = (one for one in self.aborted if one[2] >= partitions[0].offset)
            part.aborted = tuple((producer, first) for producer, first, _ in ended)
        return fetched


def batch_of(first: int, count: int = 10, at: int | None = None, *, producer: int = -1) -> bytes:
    """Return source records as a batch at an offset; with a producer in a transaction of it."""
    shift = 0 if at is None else at - first
    numbers = range(first, first + count)
    records = [Record(n + shift, 1000 + n, b"k", str(n).encode()) for n in numbers]
    raw = bytearray(stored(records, producer_id=producer))
    if producer >= 0:
        raw[22] |= 0x10
        seal(memoryview(raw))
    return bytes(raw)


def reader(log: Log) -> LogReader:
    return LogReader(log, TopicPartition("T", 0), b"", read_committed=False)  # type: ignore[arg-type]


def aligned(
    source: Log,
    target: Log,
    ends: tuple[int, int] | None = None,
    begin: tuple[int, int] = (0, 0),
) -> AlignedCopy:
    ends = ends or (source.end, target.end)
    return asyncio.run(
        align(reader(source), reader(target), begin, ends, COLUMNS, (False, False), lambda _: None)
    )


def plain(batch_count: int) -> ServedLog:
    return ServedLog([batch_of(10 * n) for n in range(batch_count)])


def test_records_of_an_aborted_transaction_on_the_target_are_no_copies() -> None:
    target = ServedLog([batch_of(0), batch_of(10, producer=WRITER), marker(20, WRITER)])
    target.aborted = ((WRITER, 10, 20),)

    found = aligned(plain(3), target)

    assert (found.source_next, found.copied, found.foreign) == (10, 10, ())


def test_what_is_copied_again_after_an_abort_is_mapped_there() -> None:
    again = batch_of(10, at=21, producer=WRITER)
    first = [batch_of(0), batch_of(10, producer=WRITER), marker(20, WRITER)]
    target = ServedLog([*first, again])
    target.aborted = ((WRITER, 10, 20),)

    found = aligned(plain(3), target)

    assert [(r.source_start, r.target_start, r.count) for r in found.runs] == [
        (0, 0, 10),
        (10, 21, 10),
    ]
    assert (found.source_next, found.repeated) == (20, 0)


def test_a_transaction_that_is_open_on_the_target_refuses_the_walk() -> None:
    target = ServedLog([batch_of(0), batch_of(10, producer=WRITER)])
    target.stable_end = 10

    with pytest.raises(UnavailableError, match="transaction is open from offset 10 on; stop its"):
        aligned(plain(3), target)
    with pytest.raises(UnavailableError):
        asyncio.run(check_decided(reader(target), 20))
    asyncio.run(check_decided(reader(target), 10))


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_leader_that_sends_nothing_before_the_end_refuses_the_walk(side: str) -> None:
    logs = {"source": plain(3), "target": plain(3)}
    logs[side].silent_from = 20

    with pytest.raises(UnavailableError, match="nothing from offset 20, though its log ends at 30"):
        aligned(logs["source"], logs["target"])


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_log_is_walked_to_its_end_though_compaction_has_removed_the_last_records(
    side: str,
) -> None:
    logs = {"source": plain(3), "target": plain(3)}
    logs[side].end = 33

    assert aligned(logs["source"], logs["target"]).copied == 30


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_log_that_has_lost_its_end_refuses_the_walk(side: str) -> None:
    logs = {"source": plain(3), "target": plain(3)}
    ends = logs["source"].end, logs["target"].end
    logs[side] = plain(2)

    with pytest.raises(UnavailableError):
        aligned(logs["source"], logs["target"], ends)


def test_logs_without_anything_new_after_a_known_position_are_walked_to_their_ends() -> None:
    found = aligned(plain(3), plain(3), begin=(30, 30))

    assert (found.source_next, found.copied, found.foreign) == (30, 0, ())


def test_copies_that_retention_removed_from_the_target_are_not_skipped() -> None:
    target = ServedLog([batch_of(10), batch_of(20)], log_start=10)

    found = aligned(plain(3), target)

    assert (found.skipped, found.copied, found.source_next) == ((), 20, 30)
