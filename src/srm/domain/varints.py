"""Whole numbers in few bytes: seven bits a byte, lowest first, the highest bit says "more".

Numbers of either sign are folded before: 0, -1, 1, -2, ... become 0, 1, 2, 3, ...
"""

from __future__ import annotations

from collections.abc import Iterable


def encode_numbers(numbers: Iterable[int]) -> bytes:
    """Write numbers of either sign one after the other; the reader has to know how many."""
    written = bytearray()
    append = written.append
    for number in numbers:
        folded = number << 1 if number >= 0 else ~(number << 1)
        while folded > 0x7F:
            append(folded & 0x7F | 0x80)
            folded >>= 7
        append(folded)
    return bytes(written)


def decode_numbers(written: bytes) -> list[int]:
    """Read all numbers that are there.

    Raises:
        ValueError: the last one is cut short.
    """
    numbers: list[int] = []
    append = numbers.append
    value = shift = 0
    for byte in written:
        if byte > 0x7F:
            value |= (byte & 0x7F) << shift
            shift += 7
            continue
        value |= byte << shift
        append(value >> 1 if not value & 1 else ~(value >> 1))
        value = shift = 0
    if shift:
        raise ValueError("a number is cut short")
    return numbers
