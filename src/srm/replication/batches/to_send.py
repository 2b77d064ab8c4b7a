"""The one place that decides how each batch travels, so copy path and resume walk agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

from srm.errors import IntegrityError
from srm.replication.batches import legacy
from srm.replication.batches.aborted import AbortedTransactions
from srm.replication.batches.batch import BatchHeader, BatchToSend, Dropped, Path, batches, verify
from srm.replication.batches.merging import Merging
from srm.replication.batches.rebuild import NO_LIMIT, decode, encode
from srm.replication.batches.target_limits import TargetLimits
from srm.replication.batches.transform import Transform
from srm.replication.ports import DecodedRecord, FetchedPartition

_MERGED_BYTES: Final = 1 << 18
"""Tiny batches are merged up to this size where the native library is missing."""


def batches_to_send(
    fetched: FetchedPartition,
    wanted_offset: int,
    owner: object,
    *,
    read_committed: bool,
    limits: TargetLimits | None = None,
    transform: Transform | None = None,
    merging: Merging | None = None,
) -> Iterator[BatchToSend | Dropped]:
    """Yield the batches to send, and the offsets up to which nothing is to be sent.

    Batches of one response are merged, in native code if available; in Python only tiny ones are.
    So no batch waits for a merge, and single records are merged only when they arrive faster than
    they can be sent alone.
    ``read_committed``: records of aborted transactions are dropped. Without ``merging``: Python.
    """
    aborted = AbortedTransactions(fetched.aborted if read_committed else ())
    knows = limits is not None and limits.knows_something
    plainly = _Plainly(wanted_offset, owner, limits if knows else None, transform, aborted)
    if merging is None or plainly.opens_all or aborted:
        yield from plainly.travel(fetched.records)
        return
    limit = merging.limit if limits is None else limits.merge_limit
    for piece in merging.pieces(fetched.records, wanted_offset, owner, limit):
        if isinstance(piece, memoryview):
            yield from plainly.travel(piece)
        else:
            yield piece


@dataclass(frozen=True, slots=True)
class _Plainly:
    """The plain path: every batch is looked at by itself, and tiny ones are merged."""

    wanted_offset: int
    owner: object
    limits: TargetLimits | None
    transform: Transform | None
    aborted: AbortedTransactions

    @property
    def opens_all(self) -> bool:
        return self.limits is not None or self.transform is not None

    def travel(self, records: memoryview) -> Iterator[BatchToSend | Dropped]:
        made = partial(_make_batches, self.wanted_offset, self.owner, self.limits, self.transform)
        opens_all, limits = self.opens_all, self.limits
        group = _Group(self.wanted_offset)
        try:
            for batch in batches(records, legacy.convert):
                is_dropped = self.aborted.drops(batch)
                path = Path.DROP if is_dropped else batch.path(self.wanted_offset)
                if path is Path.DROP:
                    verify(batch)
                    group.pass_over(batch)
                    if not group.batches:
                        yield group.end
                    continue
                if opens_all or path is not Path.PASS or batch.is_tiny:
                    verify(batch)
                if group.batches and not group.has_room_for(batch):
                    full, group = group, _Group(self.wanted_offset)
                    yield from made(full)
                passes = path is not Path.REBUILD and (not limits or limits.passes(batch))
                group.add(batch, passes=passes)
        except IntegrityError:
            if group.batches:
                yield from made(group)
            raise
        if group.batches:
            yield from made(group)


class _Group:
    """Batches that leave as one, and how far the source is passed with them."""

    def __init__(self, wanted_offset: int) -> None:
        self.batches: list[BatchHeader] = []
        self.passes = False
        self.end = Dropped(wanted_offset, -1)
        self._size = 0

    def has_room_for(self, batch: BatchHeader) -> bool:
        first = self.batches[0]
        return (
            batch.is_tiny
            and first.is_tiny
            and batch.codec == first.codec
            and self._size + len(batch.view) < _MERGED_BYTES
        )

    def add(self, batch: BatchHeader, *, passes: bool) -> None:
        self.passes = passes and not self.batches
        self.batches.append(batch)
        self._size += len(batch.view)
        self.pass_over(batch)

    def pass_over(self, batch: BatchHeader) -> None:
        self.end = Dropped(batch.last_offset + 1, batch.leader_epoch)


def _make_batches(
    wanted_offset: int,
    owner: object,
    limits: TargetLimits | None,
    transform: Transform | None,
    group: _Group,
) -> Iterator[BatchToSend | Dropped]:
    first, end, passes = group.batches[0], group.end, group.passes
    headers_of = None if transform is None else transform.headers_of()
    if passes and (transform is None or not transform.drops_some) and headers_of is None:
        yield _pass_through(first, end, owner)
        return
    decoded = decode(first, wanted_offset)
    for batch in group.batches[1:]:
        decoded += decode(batch, wanted_offset)
    records: Sequence[DecodedRecord] = decoded if transform is None else transform.select(decoded)
    if passes and headers_of is None and len(records) == first.record_count:
        yield _pass_through(first, end, owner)
        return
    parts = [records] if limits is None else limits.parts(records)
    limit = NO_LIMIT if limits is None else limits.limit
    made = [
        BatchToSend(built.view, built.count, built.stretches, *end, built.max_timestamp, built.view)
        for part in parts
        if part
        for built in encode(part, first.codec, limit=limit, headers_of=headers_of)
    ]
    if not made:
        yield end
    # Each ends where the next begins: what is dropped between them has been passed by then.
    for outgoing, following in pairwise(made):
        outgoing.source_next = following.stretches[0][0]
    yield from made


def _pass_through(batch: BatchHeader, end: Dropped, owner: object) -> BatchToSend:
    count = batch.record_count
    stretches = [(batch.base_offset, count)]
    return BatchToSend(batch.view, count, stretches, *end, batch.max_timestamp, owner)
