"""Buffers that are used again, so that the hot path touches warm memory only."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

_KEPT: Final = 8
_GRAIN: Final = 1 << 16


class BufferPool:
    """Up to ``kept`` byte arrays to hand out; not thread-safe, one per event loop."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._free: list[bytearray] = []  # the smallest first

    def take(self, size: int) -> PooledBuffer:
        if size < _GRAIN:
            return PooledBuffer(bytearray(size), size, self)
        index = bisect_left(self._free, size, key=len)
        if index < len(self._free):
            return PooledBuffer(self._free.pop(index), size, self)
        return PooledBuffer(bytearray(-(-size // _GRAIN) * _GRAIN), size, self)

    def give(self, data: bytearray) -> None:
        """Take a buffer back; keep the largest ones."""
        if len(data) < _GRAIN:
            return
        insort(self._free, data, key=len)
        if len(self._free) > self._kept:
            del self._free[0]


class PooledBuffer:
    """A borrowed byte array that returns to its pool with its last reference; views need one."""

    __slots__ = ("_pool", "_size", "data")

    def __init__(self, data: bytearray, size: int, pool: BufferPool) -> None:
        self.data = data
        self._size = size
        self._pool = pool

    @property
    def view(self) -> memoryview:
        """The bytes that were taken, without what the array holds after them from earlier use."""
        return memoryview(self.data)[: self._size]

    def __del__(self) -> None:
        self._pool.give(self.data)
