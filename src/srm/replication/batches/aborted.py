"""Filter for the batches of aborted transactions, as in Kafka's consumer (CompletedFetch).

The response lists each aborted transaction by producer id and first offset; its batches end at the
abort marker of that producer.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Final

from srm.replication.batches.batch import HEADER_SIZE, BatchHeader

_ABORT: Final = 0
_CONTROL_KEY: Final = struct.Struct(">hh")


def is_abort_marker(batch: BatchHeader) -> bool:
    """Return whether a control batch holds an ABORT marker; the log cleaner may empty one."""
    if not batch.record_count:
        return False
    at = _after_varint(batch.view, HEADER_SIZE)  # length of the record
    at += 1  # attributes
    for _ in ("timestamp delta", "offset delta", "key length"):
        at = _after_varint(batch.view, at)
    _, kind = _CONTROL_KEY.unpack_from(batch.view, at)
    return int(kind) == _ABORT


def _after_varint(view: memoryview, at: int) -> int:
    while view[at] & 0x80:
        at += 1
    return at + 1


class AbortedTransactions:
    """Follows the batches of one fetch response, in order."""

    def __init__(self, aborted: tuple[tuple[int, int], ...]) -> None:
        self._to_come = deque(sorted(aborted, key=lambda transaction: transaction[1]))
        self._open: set[int] = set()

    def __bool__(self) -> bool:
        """Return whether an aborted transaction is open or may follow."""
        return bool(self._to_come or self._open)

    def drops(self, batch: BatchHeader) -> bool:
        """Return whether the batch is aborted; call once for each batch, in offset order."""
        while self._to_come and self._to_come[0][1] <= batch.last_offset:
            self._open.add(self._to_come.popleft()[0])
        if batch.producer_id not in self._open:
            return False
        if batch.is_control:
            if is_abort_marker(batch):
                self._open.discard(batch.producer_id)
            return False
        return batch.is_transactional
