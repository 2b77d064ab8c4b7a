"""Columns of whole numbers in few bytes: varints (:mod:`.varints`), equal neighbours counted.

A column is a list of stretches. Each begins with a header: twice the number of its values, plus one
if they are all the same and only the first one follows. So a column of equal values costs three or
four bytes, one of small values that differ a byte each.

The numbers of a column are not negative; of such as may be, the caller writes folded ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from srm.domain.offset_map import varints
from srm.domain.offset_map.runs import Offsets
from srm.domain.offset_map.varints import LARGEST
from srm.errors import IntegrityError

_SHORTEST_REPEAT: Final = 8  # below that, a stretch of its own costs more time than it saves bytes


def encode(columns: Iterable[Offsets]) -> bytes:
    """Write columns one after the other; how long each one is, the reader has to know.

    Raises:
        ValueError: a number is negative or too large.
    """
    pieces = [piece for column in columns for piece in _stretches(column)]
    return varints.encode(np.concatenate(pieces) if pieces else np.empty(0, np.int64))


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


def decode(data: bytes | memoryview, sizes: Iterable[int]) -> list[Offsets]:
    """Read columns of these sizes, which must be all there is; the caller bounds them.

    Raises:
        IntegrityError: the bytes are something else.
    """
    try:
        numbers = varints.decode(data)
    except ValueError as error:
        raise IntegrityError(str(error)) from error
    found: list[Offsets] = []
    at = 0
    for size in sizes:
        column, at = _column(numbers, at, size)
        found.append(column)
    if at != len(numbers):
        raise IntegrityError("more follows than there should be")
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
            raise IntegrityError("a column has a stretch of another length than it says")
        values = numbers[at + 1 : at + 1 + follow]
        pieces.append(np.full(count, values[0]) if header & 1 else values)
        at += 1 + follow
        left -= count
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces or [numbers[:0]]), at


def running_total(first: int, steps: Offsets) -> Offsets:
    """Return ``first``, and the sum of it and the steps up to each of them: one more than steps.

    Raises:
        IntegrityError: a sum is negative or too large for an offset.
    """
    low, high = (int(steps.min()), int(steps.max())) if len(steps) else (0, 0)
    beyond = max(-low, high) * len(steps) > LARGEST - first
    if beyond:  # perhaps: that bound costs less than the sum
        beyond = float(np.abs(steps.astype(float)).sum()) > LARGEST - first
    if not 0 <= first <= LARGEST or beyond:
        raise IntegrityError("offsets grow beyond all bounds")
    totals = np.empty(len(steps) + 1, np.int64)
    totals[0] = 0
    np.cumsum(steps, out=totals[1:])
    totals += first
    if low < 0 and int(totals.min()) < 0:
        raise IntegrityError("an offset is negative")
    return totals
