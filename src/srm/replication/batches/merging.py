"""Batches of one fetch answer that leave as fewer, larger ones: the native path.

A produce request takes one batch of each partition, and costs both srm and the broker the same
whatever is in it. Producers send 16 KB by default, so batches that arrived together are merged, up
to a size that every usual topic takes. Nothing waits to be merged. ``merge.c`` does it, and closes
holes on the way; what is strange to it, and small compressed batches, come back as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from srm.replication.batches.outgoing import BatchToSend, Dropped
from srm.replication.buffers import BufferPool, PooledBuffer
from srm.replication.native.library import Kind, NativeLibrary, Outgoing

LARGEST_MERGED: Final = 1 << 16
"""Bytes above which a batch is sent alone: to copy it costs more than its request."""

_ROOMS: Final = 32
_GROWTH: Final = 4096
"""Room for varints that grow, beside an eighth of all: what does not fit takes another way."""


class Merging:
    """What is merged, with what, and where.

    Args:
        native: does it.
        limit: bytes up to which batches are merged; 0: none are, only their holes are closed.
    """

    def __init__(self, native: NativeLibrary, limit: int) -> None:
        self.native = native
        self.limit = limit
        self._rooms = BufferPool(_ROOMS)

    def pieces(
        self, records: memoryview, wanted_offset: int, owner: object, limit: int
    ) -> Iterator[BatchToSend | Dropped | memoryview]:
        """Yield what is to be sent, how far nothing is, and bytes for the plain path.

        Args:
            records: batches as fetched; an incomplete last one is left out.
            wanted_offset: first source offset that is still to be copied.
            owner: keeps the memory of the records.
            limit: as the instance's, for the partition.
        """
        at = 0
        while at < len(records):
            left = records[at:]
            room = self._rooms.take(len(left) + len(left) // 8 + _GROWTH)
            end, outgoing, stretches = self.native.merge(
                left,
                room.data,
                wanted=wanted_offset,
                limit=min(limit, self.limit),
                largest=min(limit, LARGEST_MERGED),
            )
            yield from _made(outgoing, iter(stretches), left, owner, room)
            if not end:
                return
            at += end


def _made(
    outgoing: Sequence[Outgoing],
    stretches: Iterator[tuple[int, int]],
    records: memoryview,
    owner: object,
    room: PooledBuffer,
) -> Iterator[BatchToSend | Dropped | memoryview]:
    made = memoryview(room.data)
    for at, size, source_next, max_time, kind, count, epoch, length in outgoing:
        if kind == Kind.DROPPED:
            yield Dropped(source_next, epoch)
        elif kind == Kind.PLAIN:
            yield records[at : at + size]
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
                kind == Kind.MADE,
            )
