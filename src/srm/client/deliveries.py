"""Records of one topic, from the call that hands them over until its cluster acknowledges them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STUCK_S: Final = 2.0
"""Seconds without an acknowledged record before a cluster is queried for the reason, and again."""
SILENT_S: Final = 30.0
"""Seconds after which records that wait without a known reason count as unwritten."""


@dataclass(slots=True)
class Deliveries:
    """State of a topic's records on the cluster that its producer follows to.

    Times are seconds by a monotonic clock.

    ``ended``: end of the last record, or the start of the producer.
    ``calls``: calls in progress, which may wait for the end of a hold.
    ``in_flight``: records without a result; ``failure``: error of the last failed record.
    ``since``: since then records wait or failed, and none was acknowledged; None without such.
    ``queried``: last query for the reason.
    ``reported``: reason that was announced, empty if the topic is written; None before the first
    record of a route.
    """

    ended: float
    calls: int = 0
    in_flight: int = 0
    failure: str = ""
    since: float | None = None
    queried: float = 0.0
    reported: str | None = ""

    def follow(self, generation: int) -> None:
        """Begin on the cluster of another route."""
        self.failure, self.since, self.reported = "", None, None if generation else ""

    def add(self, now: float) -> None:
        """Take a record that was handed over."""
        self.in_flight += 1
        self.since = now if self.since is None else self.since

    def acknowledge(self, now: float) -> None:
        """Take a record that the cluster has written."""
        self._end(now)
        self.failure, self.since = "", now if self.in_flight else None

    def fail(self, now: float, failure: str = "") -> None:
        """Take a failed record; without ``failure`` it does not concern the cluster."""
        self._end(now)
        self.failure = failure or self.failure
        if not (self.in_flight or self.failure):
            self.since = None

    def _end(self, now: float) -> None:
        self.in_flight -= 1
        self.ended = now

    def is_stuck(self, now: float) -> bool:
        """Return whether the reason has to be found, or found again."""
        is_open = self.since is not None and (self.in_flight or not self.reported)
        return bool(is_open) and now - max(self.since or 0, self.queried) >= STUCK_S

    def reason(self, now: float, doing: str, refusal: str) -> str:
        """Return why records are not written; ``refusal``: error in the topic's metadata."""
        silent = self.since is not None and now - self.since >= SILENT_S
        late = f"{doing}: no record was acknowledged for {SILENT_S:g} s" if silent else ""
        return refusal or self.failure or late

    @property
    def unwritten(self) -> int:
        """Number of records that wait for a known reason."""
        return self.in_flight if self.reported else 0
