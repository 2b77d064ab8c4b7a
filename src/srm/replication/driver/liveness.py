"""Liveness of slots, judged by when their reports arrive here.

Clocks of other machines are not compared with ours: the driver's own monotonic clock at arrival
counts. A log that cannot be read makes every slot look silent, so silence only counts while the
driver's own heartbeats return through the same log.
"""

from __future__ import annotations

from collections.abc import Collection

from srm.domain.flow_state.liveness_thresholds import DEAF_S, ECHO_S, SLOT_DEAD_S


class Liveness:
    """Arrival times of slot reports. All times are monotonic seconds."""

    def __init__(
        self,
        expected: Collection[str],
        now: float,
        *,
        timeout_s: float = SLOT_DEAD_S,
        grace_s: float = 10.0,
    ) -> None:
        """Begin with every slot unknown.

        Args:
            expected: slots of this application; reports of others are ignored.
            timeout_s: a slot that is silent for longer is dead.
            grace_s: how long the first assignment waits for all slots, counted from the first one.
        """
        self._expected = frozenset(expected)
        self._timeout_s = timeout_s
        self._grace_s = grace_s
        self._seen: dict[str, float] = {}
        self._first: float | None = None
        self._echo = now

    def observe(self, slot: str, now: float) -> None:
        """Note that a report of the slot has arrived."""
        if slot in self._expected:
            self._seen[slot] = now
            self._first = now if self._first is None else self._first

    def echo(self, now: float) -> None:
        """Note that the driver's own heartbeat came back: the log can be written and read.

        During a gap slots could not report either, so their silence is counted from now on.
        """
        gap = now - self._echo
        if gap > ECHO_S:
            self._seen = {slot: min(now, seen + gap) for slot, seen in self._seen.items()}
        self._echo = now

    def alive(self, now: float) -> tuple[str, ...]:
        """Return the slots whose silence is short, in stable order."""
        return tuple(sorted(s for s, seen in self._seen.items() if now - seen <= self._timeout_s))

    def due(self, now: float) -> float:
        """Return when the next slot dies without another heartbeat; infinity: no live slot."""
        deaths = (seen + self._timeout_s for seen in self._seen.values())
        return min((death for death in deaths if death >= now), default=float("inf"))

    def deaf(self, now: float) -> bool:
        """Return whether written heartbeats have not been read back for too long.

        The reader has failed then, and a new one has to be opened.
        """
        return now - self._echo > DEAF_S

    def is_decisive(self, now: float) -> bool:
        """Return whether the set of live slots is reliable.

        It is not while our own heartbeats are missing in the log, nor at the start before all slots
        have reported or the grace time is over. Otherwise the first slot to report gets everything.
        """
        if self._first is None or now - self._echo > ECHO_S:
            return False
        complete = self._seen.keys() == self._expected
        return bool(self.alive(now)) and (complete or now - self._first >= self._grace_s)
