"""From fetched bytes to what is sent: the one place that decides how each batch travels.

The copy path and the resume walk both go through here, so they always agree about which source
records are on the target, and in which batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from srm.domain.offset_map import Run
from srm.replication.batch import BatchHeader, Path, batches
from srm.replication.ports import FetchedPartition
from srm.replication.rebuild import decode, encode, stretches
from srm.replication.transactions import AbortedTransactions


@dataclass(slots=True)
class Unit:
    """One batch on its way: passed through, or rebuilt.

    ``stretches`` are (first source offset, count) of consecutive records, in order; a batch that
    passes through has one. ``source_next`` is the source offset after the original batch.
    ``owner`` keeps the memory behind ``view``.
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
    """Yield what is to be sent, and a source offset (int) for each stretch that is dropped.

    Raises:
        IntegrityError: a batch cannot be read.
    """
    aborted = AbortedTransactions(fetched.aborted if read_committed else ())
    for batch in batches(fetched.records):
        if aborted.drops(batch):
            yield batch.last_offset + 1
            continue
        path = batch.path(wanted_offset)
        if path is Path.PASS:
            yield Unit(
                batch.view,
                batch.count,
                [(batch.base_offset, batch.count)],
                batch.last_offset + 1,
                batch.max_timestamp,
                owner,
            )
            continue
        rebuilt = _rebuilt(batch, wanted_offset) if path is Path.REBUILD else None
        yield batch.last_offset + 1 if rebuilt is None else rebuilt


def _rebuilt(batch: BatchHeader, wanted_offset: int) -> Unit | None:
    records = decode(batch, wanted_offset)
    if not records:
        return None
    view = encode(records, batch.codec)
    parts = stretches([record.offset for record in records])
    return Unit(view, len(records), parts, batch.last_offset + 1, batch.max_timestamp, view)
