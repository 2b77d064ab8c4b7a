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
from srm.replication.ports import FetchedPartition
from srm.replication.rebuild import rebuild
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


def units(
    fetched: FetchedPartition, wanted_offset: int, owner: object, *, read_committed: bool
) -> Iterator[Unit | int]:
    """Yield what is to be sent, and a source offset (int) where nothing before it is.

    Tiny batches that arrived in one response are merged. So nothing ever waits to be merged, and a
    topic of single records is merged exactly when they come faster than they can be sent alone.

    Raises:
        IntegrityError: a batch cannot be read.
    """
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
            yield _unit(group, wanted_offset, source_next, owner, passes=passes)
            group = []
        if group:
            passes = False
        else:
            grows, passes, size, codec = tiny, path is Path.PASS, 0, batch.codec
        group.append(batch)
        size += length
        source_next = batch.last_offset + 1
    if group:
        yield _unit(group, wanted_offset, source_next, owner, passes=passes)


def _unit(
    group: list[BatchHeader], wanted_offset: int, source_next: int, owner: object, *, passes: bool
) -> Unit | int:
    if passes:
        [batch] = group
        stretches = [(batch.base_offset, batch.record_count)]
        return Unit(
            batch.view, batch.record_count, stretches, source_next, batch.max_timestamp, owner
        )
    rebuilt = rebuild(group, wanted_offset)
    if not rebuilt.count:
        return source_next
    newest = max(batch.max_timestamp for batch in group)
    return Unit(rebuilt.view, rebuilt.count, rebuilt.stretches, source_next, newest, rebuilt.view)
