"""Batches of one fetch answer that leave as fewer, larger ones: the native path.

A produce request takes one batch of each partition, and costs the same whatever its size. So
batches that arrived together are merged; none waits for a merge. ``merge.c`` merges, and closes
holes on the way; it leaves batches of unsupported form to the plain path.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from srm.errors import IntegrityError
from srm.replication.batches.batch import BatchToSend, Dropped, disorder, is_valid
from srm.replication.batches.codecs import MERGED_CODECS, codec_of, compress, open_into
from srm.replication.buffers import BufferPool, PooledBuffer
from srm.replication.native.library import Kind, Merged, NativeLibrary

LARGEST_MERGED: Final = 1 << 19
"""Bytes above which a batch is sent alone: to copy it costs more than its request."""

SMALL_COMPRESSED: Final = 1 << 15
_OPENED_EACH: Final = 24
_OPENED_EVER: Final = 1 << 15
"""Bytes that a small batch may always unpack to, plus the ratio above, to bound memory."""
_OPENED_AT_ONCE: Final = 128 << 20
"""Limit for all batches of one part of a fetch answer together; the others wait."""
_GROWTH: Final = 4096
"""Room for growing varints, besides an eighth of the total; larger batches are not merged."""


class Merging:
    """Merging of batches by the native library, up to ``limit`` bytes; 0: only holes are closed."""

    def __init__(self, native: NativeLibrary, limit: int) -> None:
        self.native = native
        self.limit = limit
        self._rooms = BufferPool(32)

    def pieces(
        self, records: memoryview, wanted_offset: int, owner: object, limit: int
    ) -> Iterator[BatchToSend | Dropped | memoryview]:
        """Yield what is to be sent, how far nothing is, and bytes for the plain path."""
        limit = min(limit, self.limit)
        to_open = _OPENED_AT_ONCE if limit else 0
        small: list[BatchToSend] = []
        try:
            for piece in self._merge(records, wanted_offset, owner, limit):
                if to_open > 0 and isinstance(piece, BatchToSend) and _is_small_compressed(piece):
                    if small and codec_of(small[0].view) != codec_of(piece.view):
                        yield from self._merge_compressed(small, limit)
                        small = []
                    small.append(piece)
                    to_open -= _most_opened(piece)
                    continue
                if small and isinstance(piece, Dropped):  # the marker of a transaction, say
                    small[-1].source_next, small[-1].leader_epoch = piece
                    continue
                yield from self._merge_compressed(small, limit)
                small = []
                yield piece
        except IntegrityError:
            yield from self._merge_compressed(small, limit)
            raise
        yield from self._merge_compressed(small, limit)

    def _merge(
        self, records: memoryview, wanted_offset: int, owner: object, limit: int
    ) -> Iterator[BatchToSend | Dropped | memoryview]:
        largest = min(limit, LARGEST_MERGED)
        at = 0
        while at < len(records):
            left = records[at:]
            room = self._rooms.take(len(left) + len(left) // 8 + _GROWTH)
            merged = self.native.merge(
                left, room.data, wanted=wanted_offset, limit=limit, largest=largest
            )
            yield from _take(merged, left, owner, room)
            if not merged.more:
                return
            at += merged.end

    # ----- compressed batches

    def _merge_compressed(self, small: list[BatchToSend], limit: int) -> Iterator[BatchToSend]:
        if len(small) < 2:
            yield from small
            return
        most = [_most_opened(batch) for batch in small]
        room = self._rooms.take(min(self.limit, sum(most)) + max(most))
        image = memoryview(room.data)
        group: list[BatchToSend] = []
        size = sent = 0
        for batch, space in zip(small, most, strict=True):
            opened = self._open_into(batch.view, image[size : size + space])
            is_full = size + opened > self.limit or sent + len(batch.view) > limit
            if group and (not opened or is_full):
                yield from self._compress(group, image[:size], limit)
                image[:opened] = image[size : size + opened]
                group, size, sent = [], 0, 0
            if opened:
                group.append(batch)
                size += opened
                sent += len(batch.view)
            else:  # it is sent unchanged: its reader reports what is wrong
                yield batch
        yield from self._compress(group, image[:size], limit)

    def _open_into(self, batch: memoryview, room: memoryview) -> int:
        if not is_valid(batch):
            return 0
        try:
            return open_into(batch, room)
        except IntegrityError:
            return 0

    def _compress(
        self, group: list[BatchToSend], image: memoryview, limit: int
    ) -> Iterator[BatchToSend]:
        if len(group) < 2:
            yield from group
            return
        room = self._rooms.take(len(image) + len(image) // 8 + _GROWTH)
        merged = self.native.merge(
            image, room.data, wanted=0, limit=len(room.data), largest=len(image), unchecked=True
        )
        records = sum(batch.count for batch in group)
        whole = [(made.kind, made.records) for made in merged.outgoing] == [(Kind.MADE, records)]
        if not whole or merged.more:
            yield from group
            return
        [made] = merged.outgoing
        view = compress(memoryview(room.data)[: made.size], codec_of(group[0].view))
        if len(view) > limit:
            yield from group
            return
        self.native.seal(view)
        last = group[-1]
        yield BatchToSend(
            view,
            made.records,
            list(merged.stretches),
            last.source_next,
            last.leader_epoch,
            made.max_time,
            view,
            is_merged=True,
        )


def _most_opened(batch: BatchToSend) -> int:
    return _OPENED_EVER + _OPENED_EACH * len(batch.view)


def _is_small_compressed(batch: BatchToSend) -> bool:
    return len(batch.view) <= SMALL_COMPRESSED and codec_of(batch.view) in MERGED_CODECS


def _take(
    merged: Merged, records: memoryview, owner: object, room: PooledBuffer
) -> Iterator[BatchToSend | Dropped | memoryview]:
    made = memoryview(room.data)
    stretches = iter(merged.stretches)
    for at, size, source_next, max_time, kind, count, epoch, length in merged.outgoing:
        if kind == Kind.DROPPED:
            yield Dropped(source_next, epoch)
        elif kind == Kind.PLAIN:
            yield records[at : at + size]
        elif kind == Kind.DISORDER:
            raise disorder(source_next)
        else:
            view, keeper = (made, room) if kind == Kind.MADE else (records, owner)
            yield BatchToSend(
                view[at : at + size],
                count,
                list(islice(stretches, length)),
                source_next,
                epoch,
                max_time,
                keeper,
                is_merged=kind == Kind.MADE,
            )
