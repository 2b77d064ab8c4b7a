"""Opening batches without holding up the event loop: in pieces, or unpacked in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Final

from srm.clock import now_s
from srm.errors import IntegrityError
from srm.extras import MissingExtraError
from srm.replication.batches.batch import BatchHeader, batches
from srm.replication.batches.records import records_in
from srm.replication.ports import DecodedRecord

_PIECE: Final = 512
"""Records decoded at once: about a millisecond."""
_TURN_S: Final = 0.01
_UNPACKED_HERE: Final = 1 << 16
"""Compressed bytes that are unpacked in the loop's own thread: at most a few milliseconds."""


class LoopShare:
    """Gives way to the other tasks of the event loop after at most some 10 ms of work."""

    def __init__(self) -> None:
        self._since = now_s()

    async def give_way(self) -> None:
        """Let others run if it is time; called after every piece of work."""
        if now_s() - self._since >= _TURN_S:
            await asyncio.sleep(0)
            self._since = now_s()


async def records_of(
    batch: BatchHeader, turns: LoopShare, wanted_offset: int = 0
) -> AsyncIterator[list[DecodedRecord]]:
    """Decode a batch, or a run of them, from ``wanted_offset`` on, piece by piece."""
    unpacks = batch.codec and len(batch.view) > _UNPACKED_HERE
    try:
        for each in batches(batch.view):
            records = records_in(each.view)
            if unpacks:
                loop = asyncio.get_running_loop()
                piece = await loop.run_in_executor(None, _piece, records)
            else:
                piece = _piece(records)
            while piece:
                if piece[0].offset < wanted_offset:
                    piece = [record for record in piece if record.offset >= wanted_offset]
                if piece:
                    yield piece
                await turns.give_way()
                piece = _piece(records)
    except (IntegrityError, MissingExtraError):
        raise
    except Exception as error:
        raise _damage_of(batch, error) from error


def first_record(batch: BatchHeader) -> DecodedRecord:
    """Decode the first record of a batch that has one."""
    try:
        return next(records_in(batch.view))
    except (IntegrityError, MissingExtraError):
        raise
    except Exception as error:
        raise _damage_of(batch, error) from error


def _damage_of(batch: BatchHeader, error: Exception) -> IntegrityError:
    return IntegrityError(f"batch at offset {batch.base_offset} cannot be decoded: {error!r}")


def _piece(records: Iterator[DecodedRecord]) -> list[DecodedRecord]:
    return list(islice(records, _PIECE))
