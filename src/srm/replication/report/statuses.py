"""Reported state of each partition of a slot, and its start time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from srm.domain.flow_state.replication_records import AT_REST, PartitionStatus, State
from srm.replication.partition.partition import PartitionCopy, Phase

_STATES: Final[dict[Phase, State]] = {
    Phase.IDLE: "copying",
    Phase.COPYING: "copying",
    Phase.CLAIMING: "claiming",
    Phase.FENCED: "waiting",
    Phase.STOPPED: "stopped",
}

_Key = tuple[str, int]


class Statuses:
    """Reports the states of partitions on change, and repeats them from time to time."""

    def __init__(self, map_topic: str) -> None:
        """Begin without a reported state; ``map_topic`` is the flow's, for people."""
        self._map_topic = map_topic
        self._told: dict[_Key, PartitionStatus] = {}
        self._rests_since: dict[_Key, int] = {}

    def forget(self, copy: PartitionCopy) -> None:
        """A partition is copied here no more."""
        self._told.pop(_key(copy), None)
        self._rests_since.pop(_key(copy), None)

    def changes(
        self, copies: Sequence[PartitionCopy], now_ms: int, *, due: bool, rests_due: bool
    ) -> Iterator[PartitionStatus]:
        """Return the states to report: changed ones, all if ``due``, idle ones if ``rests_due``."""
        for copy in copies:
            key = _key(copy)
            known = self._told.get(key)
            status = self._status(copy, known or copy.start.at_rest, now_ms)
            if status == known and not (due or (rests_due and status.state != "copying")):
                continue
            self._told[key] = status
            yield status

    def _status(
        self, copy: PartitionCopy, known: PartitionStatus | None, now_ms: int
    ) -> PartitionStatus:
        """Return the state; a stopped partition stays so over retries until it makes progress."""
        key, state = _key(copy), _STATES[copy.phase]
        if known is not None and known.state in AT_REST:
            self._rests_since.setdefault(key, known.time_ms)
            is_tried = copy.is_troubled and state not in AT_REST
            if is_tried and copy.reason in ("", known.reason):
                return known
        lost_from, lost_to = copy.blocked or (None, None)
        reason = copy.reason
        if copy.held_back and not copy.position_is_untold and state == "copying":
            state, reason = "stopped", f"{self._map_topic} cannot be written for now"
        status = PartitionStatus(*key, state, reason, lost_from, lost_to, action=copy.action)
        if state in AT_REST:
            return replace(status, time_ms=self._rests_since.setdefault(key, now_ms))
        if not copy.is_troubled:
            self._rests_since.pop(key, None)
        if known is not None and status == replace(known, time_ms=0):
            return known
        return replace(status, time_ms=now_ms)


def _key(copy: PartitionCopy) -> _Key:
    return copy.source.topic, copy.source.partition
