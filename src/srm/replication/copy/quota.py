"""The bytes per second that one slot may copy: its share of the flow's limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from srm.clock import now_s

_BURST_S: Final = 0.1
_LEAST_FETCH: Final = 1 << 16


class Quota:
    """Spreads a byte rate over time by a wait before the next fetch; no limit: no wait."""

    def __init__(self, bytes_per_second: float | None, clock: Callable[[], float] = now_s) -> None:
        """Begin with the whole limit, ``bytes_per_second``; None means unlimited."""
        self._limit = bytes_per_second
        self._rate = bytes_per_second
        self._clock = clock
        self._paid_until = 0.0

    def set_share(self, share: float) -> None:
        """Use a part of the limit, 0 to 1: other slots copy partitions of the same flow."""
        if self._limit is not None:
            self._rate = max(1.0, self._limit * share)

    def fetch_bytes(self, most: int) -> int:
        """Return how much to fetch at once, so that the rate is even: at most ``most``."""
        if self._rate is None:
            return most
        return min(most, max(_LEAST_FETCH, int(self._rate * _BURST_S)))

    def spend(self, count: int) -> float:
        """Account for ``count`` bytes; return the seconds to wait before the next ones."""
        if self._rate is None:
            return 0.0
        now = self._clock()
        self._paid_until = max(self._paid_until, now - _BURST_S) + count / self._rate
        return max(0.0, self._paid_until - now)
