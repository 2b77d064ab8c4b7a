"""The work of an alignment grows with the records, whatever compaction or others left of a log."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import pytest
from tests.unit.domain.offset_map.test_alignment import One, align

from srm.domain.offset_map import alignment
from srm.domain.offset_map.alignment import AlignedCopy, Columns

KEYS = 40
CHUNK = 100


class Counted(np.ndarray):  # type: ignore[type-arg]
    """An array that counts the elements which functions of numpy read."""

    steps = 0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        Counted.steps += max(map(_size, inputs))
        plain = [_plainly(each) for each in inputs]
        if "out" in options:
            options["out"] = tuple(map(_plainly, options["out"]))
        return _counted(getattr(ufunc, method)(*plain, **options))

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        if function is np.searchsorted:
            Counted.steps += _size(args[1]) * math.ceil(math.log2(_size(args[0]) + 2))
        else:
            Counted.steps += sum(
                map(_size, args[0] if isinstance(args[0], (list, tuple)) else args[:1])
            )
        return _counted(function(*map(_plainly, args), **options))


def _size(value: Any) -> int:
    return value.size if isinstance(value, np.ndarray) else 1


def _plainly(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plainly, value))
    return value.view(np.ndarray) if isinstance(value, Counted) else value


def _counted(value: Any) -> Any:
    return value.view(Counted) if isinstance(value, np.ndarray) else value


@contextmanager
def counting(patch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """Count the elements read by numpy, and the calls of functions."""
    calls, made = count(), [0]

    def note(_frame: object, event: str, _argument: object) -> None:
        if event in {"call", "c_call"}:
            made[0] = next(calls)

    Counted.steps = 0
    plain = Columns.__init__

    def init(self: Columns, *arrays: Any) -> None:
        plain(self, *map(_counted, arrays))

    patch.setattr(Columns, "__init__", init)
    sys.setprofile(note)
    try:
        yield lambda: Counted.steps + made[0]
    finally:
        sys.setprofile(None)


def compacted_on_the_target(size: int) -> AlignedCopy:
    """Every third record is gone there, as a later one of its key followed."""
    source = [One(n, n, 1 + n % KEYS) for n in range(size)]
    kept = [one for one in source if one.offset % 3 or one.offset >= size - KEYS]
    return align(source, kept, CHUNK, target_compacts=True)


def compacted_on_the_source(size: int) -> AlignedCopy:
    """Every third record of the target is gone at the source."""
    target = [One(n, n, 1 + n % KEYS) for n in range(size)]
    kept = [one for one in target if one.offset % 3]
    return align(kept, target, CHUNK, source_compacts=True)


def filled_by_others(size: int) -> AlignedCopy:
    """Every third record of the target is foreign."""
    source = [One(n, n) for n in range(size)]
    target = [One(n, n if n % 3 else -n - 1) for n in range(size)]
    return align(source, target, CHUNK)


@pytest.mark.parametrize(
    "walk",
    [
        compacted_on_the_target,
        compacted_on_the_source,
        filled_by_others,
    ],
)
def test_four_times_the_records_take_about_four_times_the_steps(
    walk: Callable[[int], AlignedCopy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alignment, "_LOOK_AHEAD", 2 * CHUNK)
    small, large = 1_000, 4_000
    found = []
    for size in (small, large):
        with monkeypatch.context() as patch, counting(patch) as steps:
            walk(size)
            found.append(steps())

    assert found[1] / found[0] < 6, found
