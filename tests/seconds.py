"""A clock of a test's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from srm import clock


@dataclass
class Seconds:
    """Seconds that pass when the test says so."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def own_seconds() -> Iterator[Seconds]:
    """Let seconds pass only where the test says so."""
    with clock.using(time := Seconds()):
        yield time
