"""Varints: whole numbers of seven bits a byte, lowest first; the highest bit means "more".

The same as in Kafka's records and in protocol buffers. Numbers that may be negative are folded
first: 0, -1, 1, -2, ... become 0, 1, 2, 3, ...

A column of them is a list of stretches. The header of each is twice the count of its values, plus
one if all are equal and only the first one follows. A column of equal values takes three or four
bytes. A column of small, different values takes one byte each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from srm.domain.offset_map.runs import Offsets
from srm.errors import IntegrityError

LARGEST: Final = 2**62 - 1
"""Largest number that can be folded; offsets are far below it."""
_LONGEST_BYTES: Final = 9  # 63 bits


def fold(numbers: Offsets) -> Offsets:
    return np.asarray((numbers << 1) ^ (numbers >> 63), np.int64)


def unfold(numbers: Offsets) -> Offsets:
    return np.asarray((numbers >> 1) ^ -(numbers & 1), np.int64)


def encode(numbers: Offsets) -> bytes:
    """Encode numbers one after the other; the reader must know their count."""
    if not len(numbers):
        return b""
    if int(numbers.min()) < 0 or int(numbers.max()) > 2 * LARGEST + 1:
        raise ValueError("a number is negative or too large to be written")
    if int(numbers.max()) < 0x80:
        return numbers.astype(np.uint8).tobytes()
    width = 1
    sizes = np.ones(len(numbers), np.int64)
    while (longer := numbers >> (7 * width)).any():
        sizes += longer > 0
        width += 1
    table = np.empty((len(numbers), width), np.uint8)
    for column in range(width):
        table[:, column] = (numbers >> (7 * column)) & 0x7F
    places = np.arange(width)
    table[places < (sizes - 1)[:, None]] |= 0x80
    return table[places < sizes[:, None]].tobytes()


def decode(data: bytes | memoryview) -> Offsets:
    """Decode all numbers; ValueError if one is cut short or too long."""
    raw = np.frombuffer(data, np.uint8)
    last = raw < 0x80
    if last.all():
        return raw.astype(np.int64)
    if not last[-1]:
        raise ValueError("a number is cut short")
    ends = np.flatnonzero(last)
    starts = np.concatenate(([0], ends[:-1] + 1))
    sizes = ends - starts + 1
    longest = int(sizes.max())
    if longest > _LONGEST_BYTES:
        raise ValueError("a number has too many bytes")
    bits = (raw & 0x7F).astype(np.int64)
    numbers = bits[starts]
    for place in range(1, longest):
        longer = sizes > place
        numbers[longer] |= bits[starts[longer] + place] << (7 * place)
    return numbers


_SHORTEST_REPEAT: Final = 8  # a shorter stretch costs more time than it saves bytes


def encode_columns(columns: Iterable[Offsets]) -> bytes:
    """Encode columns one after the other; the reader must know their lengths."""
    pieces = [piece for column in columns for piece in _stretches(column)]
    return encode(np.concatenate(pieces) if pieces else np.empty(0, np.int64))


def _stretches(column: Offsets) -> list[Offsets]:
    size = len(column)
    if not size:
        return []
    edges = np.flatnonzero(np.diff(column)) + 1
    starts = np.concatenate(([0], edges))
    lengths = np.diff(np.append(starts, size))
    pieces: list[Offsets] = []
    done = 0
    for index in np.flatnonzero(lengths >= min(_SHORTEST_REPEAT, size)):
        start, length = int(starts[index]), int(lengths[index])
        if start > done:
            pieces += [np.array([2 * (start - done)]), column[done:start]]
        pieces += [np.array([2 * length + 1]), column[start : start + 1]]
        done = start + length
    if done < size:
        pieces += [np.array([2 * (size - done)]), column[done:]]
    return pieces


def decode_columns(data: bytes | memoryview, sizes: Iterable[int]) -> list[Offsets]:
    """Decode columns of the given sizes, bounded by the caller; nothing may follow them."""
    try:
        numbers = decode(data)
    except ValueError as error:
        raise IntegrityError(str(error)) from error
    found: list[Offsets] = []
    at = 0
    for size in sizes:
        column, at = _column(numbers, at, size)
        found.append(column)
    if at != len(numbers):
        raise IntegrityError("bytes follow the last column")
    return found


def _column(numbers: Offsets, at: int, size: int) -> tuple[Offsets, int]:
    pieces: list[Offsets] = []
    left = size
    while left:
        if at >= len(numbers):
            raise IntegrityError("a column ends too early")
        header = int(numbers[at])
        count, follow = header >> 1, 1 if header & 1 else header >> 1
        if not 0 < count <= left or at + 1 + follow > len(numbers):
            raise IntegrityError("the length of a stretch in a column contradicts its header")
        values = numbers[at + 1 : at + 1 + follow]
        pieces.append(np.full(count, values[0]) if header & 1 else values)
        at += 1 + follow
        left -= count
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces or [numbers[:0]]), at


def running_total(first: int, steps: Offsets) -> Offsets:
    """Return ``first`` and its running sums with the steps: one value more than steps."""
    low, high = (int(steps.min()), int(steps.max())) if len(steps) else (0, 0)
    beyond = max(-low, high) * len(steps) > LARGEST - first
    if beyond:  # possibly: this bound is cheaper than the sum
        beyond = float(np.abs(steps.astype(float)).sum()) > LARGEST - first
    if not 0 <= first <= LARGEST or beyond:
        raise IntegrityError("an offset is larger than 2^62 - 1")
    totals = np.empty(len(steps) + 1, np.int64)
    totals[0] = 0
    np.cumsum(steps, out=totals[1:])
    totals += first
    if low < 0 and int(totals.min()) < 0:
        raise IntegrityError("an offset is negative")
    return totals
