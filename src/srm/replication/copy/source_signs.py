"""Signs of the source: when it last answered, how fast it grew, what was held back then."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

_LOOKS: Final = 10
_MOST_HELD: Final = 2000


class SourceSigns:
    """A slot's last knowledge of its source, in case the source fails.

    Updated with each heartbeat. The last values stay: a source that does not answer is neither
    known to be idle nor to grow.
    """

    def __init__(self) -> None:
        self._heard_at = float("-inf")
        self._looked_at = 0.0
        self._ends: dict[Any, int] = {}
        self._growth: deque[float] = deque(maxlen=_LOOKS)
        self._held: dict[Any, int] = {}

    def look(
        self,
        heard_at: float | None,
        ends: Mapping[Any, int],
        now: float,
        highs: Mapping[Any, int] | None = None,
    ) -> None:
        """Record the progress of partitions.

        Args:
            heard_at: when the source last answered for all of them, monotonic seconds; None if not
                known.
            ends: last reported end of each source partition that can be copied.
            now: monotonic seconds.
            highs: high watermark of each partition, larger while a transaction is open.
        """
        if not ends:
            self._growth.clear()  # others copy what grew
        if heard_at is None or heard_at <= self._heard_at:
            return
        self._heard_at = heard_at
        # Before the first answer an end is 0: the records already there are not growth.
        grown = sum(
            max(0, end - before) for which, end in ends.items() if (before := self._ends.get(which))
        )
        if self._ends and now > self._looked_at:
            self._growth.append(grown / (now - self._looked_at))
        # A transaction of the usual kind is over at the next look.
        held = {
            which: high
            for which, high in (highs or {}).items()
            if high > ends[which] == self._ends.get(which)
        }
        most = sorted(held, key=lambda which: ends[which] - held[which])[:_MOST_HELD]
        self._held = {which: held[which] for which in most}
        self._ends, self._looked_at = dict(ends), now

    def silent_s(self, now: float) -> float:
        """Return for how long the source has not answered; infinity: it never has."""
        return now - self._heard_at

    @property
    def held_back(self) -> Mapping[Any, int]:
        """High watermarks of logs that grew after an open transaction, at the last answer."""
        return self._held

    @property
    def growth(self) -> int:
        """Offsets a second that the source grew by at most, in the last seconds it answered."""
        return round(max(self._growth, default=0.0))
