"""Detection of the moment when a flow has copied everything that existed at its start."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.names.topics import TopicPartition
from srm.engine.ports import Cluster
from srm.errors import ConflictError, DataLossError, SrmError
from srm.replication.driver.driver import FlowDriver

STUCK_S: Final = 40.0  # longer than a slot waits before it tries a stopped partition again


class CatchUp:
    """Compares the positions of one flow with the source's log ends, taken once after the start.

    The ends are last stable offsets, so an open transaction is not waited for.
    """

    def __init__(
        self,
        driver: FlowDriver,
        source: Cluster,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Wait for the driver's first discovery before anything is decided."""
        self._driver = driver
        self._source = source
        self._clock = clock
        self._goal: dict[AssignedPartition, int] | None = None
        self._behind: Mapping[AssignedPartition, int] = {}
        self._stuck_since: float | None = None

    def done(self) -> bool:
        """Return whether every partition has reached its end.

        Raises:
            DataLossError: the remaining partitions stopped because the source lost records.
            ConflictError: the remaining partitions stopped, or a remote topic cannot be created.
            SrmError: a cluster failed for ``STUCK_S`` seconds without any copied record.
        """
        progress = self._driver.progress
        if self._goal is None:
            self._goal = self._ends()
        if self._goal is None:
            self._check_stuck(progress.trouble or self._pending())
            return False
        behind = progress.behind(self._goal)
        moves, self._behind = bool(self._behind) and behind != self._behind, behind
        if behind:
            self._check_stuck(None if moves else progress.trouble or self._reasons(behind))
        return not behind

    def _ends(self) -> dict[AssignedPartition, int] | None:
        found = self._driver.discovered
        if found is None or found.pending:
            return None
        names = {p: TopicPartition(p.topic, p.partition) for p in found.partitions}
        try:
            starts = self._source.log_starts(names.values())
            ends = self._source.log_ends(names.values())
        except SrmError:
            return None  # discovery meets the same, and waits
        return {
            assigned: ends[name]
            for assigned, name in names.items()
            if ends.get(name, 0) > starts.get(name, 0)
        }

    def _pending(self) -> SrmError | None:
        found = self._driver.discovered
        if found is None or not found.pending:
            return None
        names = ", ".join(found.pending)
        return ConflictError(f"the remote topics of {names} cannot be created, see the log")

    def _reasons(self, behind: Collection[AssignedPartition]) -> SrmError | None:
        """Return why nothing more will come, None while any partition still moves."""
        stopped = self._driver.progress.stopped_partitions()
        names = [TopicPartition(p.topic, p.partition) for p in behind]
        if not all(name in stopped for name in names):
            return None
        lost = any(status.lost_from is not None for status in stopped.values())
        reasons = "; ".join(f"{name}: {stopped[name].why}" for name in names)
        return (DataLossError if lost else ConflictError)(reasons)

    def _check_stuck(self, reason: SrmError | None) -> None:
        if reason is None:
            self._stuck_since = None
            return
        now = self._clock()
        self._stuck_since = now if self._stuck_since is None else self._stuck_since
        if now - self._stuck_since <= STUCK_S:
            return
        raise type(reason)(f"the copy cannot catch up: {reason}")
