"""Varints: whole numbers of seven bits a byte, lowest first; the highest bit means "more".

The same as in Kafka's records and in protocol buffers. Numbers that may be negative are folded
first: 0, -1, 1, -2, ... become 0, 1, 2, 3, ...
"""

from __future__ import annotations

from typing import Final

import numpy as np

from srm.domain.offset_map.runs import Offsets

LARGEST: Final = 2**62 - 1
"""Largest number that can be folded; offsets are far below it."""
_LONGEST_BYTES: Final = 9  # 63 bits


def fold(numbers: Offsets) -> Offsets:
    """Fold signed numbers into numbers that are not negative."""
    return np.asarray((numbers << 1) ^ (numbers >> 63), np.int64)


def unfold(numbers: Offsets) -> Offsets:
    """Undo :func:`fold`."""
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
