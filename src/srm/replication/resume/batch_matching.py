"""Matching a batch of ours with whole batches of the source, without looking at each record.

One that passed as it was has the same bytes. One that was merged holds the records of several, in
other bytes, which ``compare.c`` compares.
"""

from __future__ import annotations

from typing import Final

from srm.errors import IntegrityError
from srm.replication.batches.batch import HEADER_SIZE, BatchHeader
from srm.replication.batches.compressed import MERGED_CODECS, open_into
from srm.replication.native.library import NativeLibrary
from srm.replication.resume.source_lookahead import SourceAhead

_TIMESTAMPS: Final = slice(27, 43)
_MOST_OPENED: Final = 2 << 20
"""Maximum size of an opened batch; merged ones have a megabyte."""

Stretches = list[tuple[int, int]]
"""(first source offset, count) of consecutive records, in order."""


class WholeBatches:
    """Finds the originals of a batch right ahead in the source.

    Args:
        ahead: of the source, with nothing opened that was not matched.
        native: compares; without it only batches that passed as they were are found.
    """

    def __init__(self, ahead: SourceAhead, native: NativeLibrary | None) -> None:
        self._ahead = ahead
        self._native = native

    async def originals(
        self, batch: BatchHeader, first: BatchHeader
    ) -> list[tuple[BatchHeader, Stretches]]:
        """Return the next batches of the source if a dense batch holds just their records.

        Args:
            batch: of the target.
            first: the next one of the source.

        Returns:
            The batches, with their records; none if that is not so, or was not found.
        """
        if _is_copy(batch, first):
            return [(first, [(first.base_offset, first.record_count)])]
        ours = _records_of(batch)
        if self._native is None or ours is None:
            return []
        comparison = self._native.comparison(ours, with_time=not batch.has_log_append_time)
        found: list[tuple[BatchHeader, Stretches]] = []
        while comparison.index < batch.record_count:
            theirs = await self._ahead.batch_ahead(len(found))
            opened = None if theirs is None else _records_of(theirs)
            stretches = None if opened is None else comparison.equals(opened)
            if theirs is None or stretches is None:
                return []
            found.append((theirs, stretches))
        return found


def _is_copy(ours: BatchHeader, theirs: BatchHeader) -> bool:
    """Return whether a batch was copied unchanged."""
    with_time = not ours.has_log_append_time
    return (
        len(ours.view) == len(theirs.view)
        and theirs.is_dense
        and not (with_time and theirs.has_log_append_time)
        and (not with_time or ours.view[_TIMESTAMPS] == theirs.view[_TIMESTAMPS])
        and bytes(ours.view[HEADER_SIZE:]) == bytes(theirs.view[HEADER_SIZE:])
    )


def _records_of(batch: BatchHeader) -> memoryview | None:
    if not batch.codec:
        return batch.view
    if batch.codec not in MERGED_CODECS:
        return None
    room = memoryview(bytearray(_MOST_OPENED))
    try:
        return room[: open_into(batch.view, room)]
    except IntegrityError:
        return None
