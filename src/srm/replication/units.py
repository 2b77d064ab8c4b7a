"""From fetched bytes to what is sent: the one place that decides how each batch travels.

The copy path and the resume walk both go through here, so they always agree about which source
records are on the target, and in which batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from srm.domain.offset_map import Run
from srm.replication.batch import BatchHeader, Path, batches
from srm.replication.cutting import Cutting
from srm.replication.ports import FetchedPartition
from srm.replication.rebuild import NO_LIMIT, Record, decode, encode
from srm.replication.transactions import AbortedTransactions

_MERGED_BYTES: Final = 1 << 18
"""Tiny batches are merged up to this size: below every usual ``max.message.bytes``."""


@dataclass(slots=True)
class Unit:
    """One batch on its way: passed through, or rebuilt from one or several.

    ``stretches`` are (first source offset, count) of consecutive records, in order; a batch that
    passes through has one. ``source_next`` is the source offset after the original batches and
    what is dropped between them. ``owner`` keeps the memory behind ``view``.
    """

    view: memoryview
    count: int
    stretches: list[tuple[int, int]]
    source_next: int
    max_timestamp: int
    owner: object

    def runs(self, target_start: int) -> Iterator[Run]:
        """Say which source records stand where, if the batch begins at ``target_start``."""
        for source_start, count in self.stretches:
            yield Run(source_start, target_start, count)
            target_start += count

    def offsets(self) -> list[int]:
        """Return the source offset of each record."""
        return [first + index for first, count in self.stretches for index in range(count)]


def units(
    fetched: FetchedPartition,
    wanted_offset: int,
    owner: object,
    *,
    read_committed: bool,
    cutting: Cutting | None = None,
) -> Iterator[Unit | int]:
    """Yield what is to be sent, and a source offset (int) where nothing before it is.

    Tiny batches that arrived in one response are merged. So nothing ever waits to be merged, and a
    topic of single records is merged exactly when they come faster than they can be sent alone.

    Args:
        fetched: what the source sent.
        wanted_offset: first offset that is still to be copied.
        owner: keeps the fetched memory.
        read_committed: whether records of aborted transactions are dropped.
        cutting: what the target's refusals have taught about the partition.

    Raises:
        IntegrityError: a batch cannot be read.
    """
    if cutting is not None and not cutting.knows_something:
        cutting = None
    aborted = AbortedTransactions(fetched.aborted if read_committed else ())
    group: list[BatchHeader] = []
    grows = passes = False
    size = codec = 0
    source_next = wanted_offset
    for batch in batches(fetched.records):
        path = Path.DROP if aborted.drops(batch) else batch.path(wanted_offset)
        if path is Path.DROP:
            source_next = batch.last_offset + 1
            if not group:
                yield source_next
            continue
        tiny, length = batch.is_tiny, len(batch.view)
        if group and not (
            tiny and grows and batch.codec == codec and size + length < _MERGED_BYTES
        ):
            yield from _units(group, wanted_offset, source_next, owner, cutting, passes=passes)
            group = []
        if group:
            passes = False
        else:
            grows, size, codec = tiny, 0, batch.codec
            passes = path is Path.PASS and (cutting is None or cutting.passes(batch))
        group.append(batch)
        size += length
        source_next = batch.last_offset + 1
    if group:
        yield from _units(group, wanted_offset, source_next, owner, cutting, passes=passes)


def _units(
    group: list[BatchHeader],
    wanted_offset: int,
    source_next: int,
    owner: object,
    cutting: Cutting | None,
    *,
    passes: bool,
) -> Iterator[Unit | int]:
    if passes:
        [batch] = group
        count = batch.record_count
        stretches = [(batch.base_offset, count)]
        yield Unit(batch.view, count, stretches, source_next, batch.max_timestamp, owner)
        return
    records: list[Record] = []
    for batch in group:
        records += decode(batch, wanted_offset)
    parts = [records] if cutting is None else cutting.parts(records)
    limit = NO_LIMIT if cutting is None else cutting.limit
    made = [
        Unit(built.view, built.count, built.stretches, 0, built.max_timestamp, built.view)
        for part in parts
        if part
        for built in encode(part, group[0].codec, limit=limit)
    ]
    # Each ends where the next begins: what is dropped between them has been passed by then.
    ends = [unit.stretches[0][0] for unit in made[1:]] + [source_next]
    for unit, end in zip(made, ends, strict=False):
        unit.source_next = end
        yield unit
    if not made:
        yield source_next
