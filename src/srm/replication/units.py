"""From fetched bytes to what is sent: the one place that decides how each batch travels.

The copy path and the resume walk both go through here, so they always agree about which source
records are on the target, and in which batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

from srm.domain.offset_map import Run
from srm.replication import legacy
from srm.replication.batch import BatchHeader, Path, batches, verify
from srm.replication.cutting import Cutting
from srm.replication.ports import FetchedPartition
from srm.replication.rebuild import NO_LIMIT, Record, decode, encode
from srm.replication.transactions import AbortedTransactions
from srm.replication.transform import Transform

_MERGED_BYTES: Final = 1 << 18
"""Tiny batches are merged up to this size: below every usual ``max.message.bytes``."""


@dataclass(slots=True)
class Unit:
    """One batch on its way: passed through, or rebuilt from one or several.

    ``stretches`` are (first source offset, count) of consecutive records, in order; a batch that
    passes through has one. ``source_next`` is the source offset after the original batches and
    what is dropped between them, ``leader_epoch`` that of the batch before it. ``owner`` keeps the
    memory behind ``view``.
    """

    view: memoryview
    count: int
    stretches: list[tuple[int, int]]
    source_next: int
    leader_epoch: int
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


class Dropped(NamedTuple):
    """Nothing before ``source_next`` is left to be sent; the epoch is as in :class:`Unit`."""

    source_next: int
    leader_epoch: int


def units(
    fetched: FetchedPartition,
    wanted_offset: int,
    owner: object,
    *,
    read_committed: bool,
    cutting: Cutting | None = None,
    transform: Transform | None = None,
) -> Iterator[Unit | Dropped]:
    """Yield what is to be sent, and how far nothing is.

    Tiny batches that arrived in one response are merged. So nothing ever waits to be merged, and a
    topic of single records is merged exactly when they come faster than they can be sent alone.

    Args:
        fetched: what the source sent.
        wanted_offset: first offset that is still to be copied.
        owner: keeps the fetched memory.
        read_committed: whether records of aborted transactions are dropped.
        cutting: what the target's refusals have taught about the partition.
        transform: what is done to records beside copying them.

    Raises:
        IntegrityError: a batch is damaged, or cannot be read.
    """
    if cutting is not None and not cutting.knows_something:
        cutting = None
    made = partial(_made, wanted_offset, owner, cutting, transform)
    aborted = AbortedTransactions(fetched.aborted if read_committed else ())
    group: list[BatchHeader] = []
    grows = passes = False
    size = codec = 0
    end = Dropped(wanted_offset, -1)
    for batch in batches(fetched.records, legacy.convert):
        path = Path.DROP if aborted.drops(batch) else batch.path(wanted_offset)
        if path is Path.DROP:
            end = Dropped(batch.last_offset + 1, batch.leader_epoch)
            if not group:
                yield end
            continue
        verify(batch)
        tiny, length = batch.is_tiny, len(batch.view)
        if group and not (
            tiny and grows and batch.codec == codec and size + length < _MERGED_BYTES
        ):
            yield from made(group, end, passes=passes)
            group = []
        if group:
            passes = False
        else:
            grows, size, codec = tiny, 0, batch.codec
            passes = path is Path.PASS and (cutting is None or cutting.passes(batch))
        group.append(batch)
        size += length
        end = Dropped(batch.last_offset + 1, batch.leader_epoch)
    if group:
        yield from made(group, end, passes=passes)


def _made(
    wanted_offset: int,
    owner: object,
    cutting: Cutting | None,
    transform: Transform | None,
    group: list[BatchHeader],
    end: Dropped,
    *,
    passes: bool,
) -> Iterator[Unit | Dropped]:
    first = group[0]
    headers_of = None if transform is None else transform.headers_of()
    if passes and (transform is None or not transform.drops_some) and headers_of is None:
        yield _passed(first, end, owner)
        return
    records: Sequence[Record] = [r for batch in group for r in decode(batch, wanted_offset)]
    if transform is not None:
        records = transform.kept(records)
    if passes and headers_of is None and len(records) == first.record_count:
        yield _passed(first, end, owner)
        return
    parts = [records] if cutting is None else cutting.parts(records)
    limit = NO_LIMIT if cutting is None else cutting.limit
    made = [
        Unit(built.view, built.count, built.stretches, *end, built.max_timestamp, built.view)
        for part in parts
        if part
        for built in encode(part, first.codec, limit=limit, headers_of=headers_of)
    ]
    if not made:
        yield end
    # Each ends where the next begins: what is dropped between them has been passed by then.
    for unit, following in pairwise(made):
        unit.source_next = following.stretches[0][0]
    yield from made


def _passed(batch: BatchHeader, end: Dropped, owner: object) -> Unit:
    count = batch.record_count
    stretches = [(batch.base_offset, count)]
    return Unit(batch.view, count, stretches, *end, batch.max_timestamp, owner)
