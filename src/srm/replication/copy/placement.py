"""Leaders that the partitions of a slot are fetched from and sent to."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol

from srm.errors import SrmError
from srm.replication.copy.fetching import SourceLoop
from srm.replication.copy.quota import Quota
from srm.replication.copy.sending import TargetLink
from srm.replication.partition.partition import PartitionCopy
from srm.replication.ports import Clock, Leader, Produced, Wire

Spawn = Callable[[Coroutine[Any, Any, None]], None]


class Events(Protocol):
    """Events of a partition at the brokers."""

    def on_data(self, copy: PartitionCopy) -> None:
        """Something was fetched or skipped."""
        ...

    def on_fetch_trouble(self, copy: PartitionCopy, error: int, failure: SrmError | None) -> None:
        """A fetch failed; ``failure``: the cause, if known."""
        ...

    def on_progress(self, copy: PartitionCopy) -> None:
        """The target has acknowledged a batch."""
        ...

    def on_refused(self, copy: PartitionCopy, produced: Produced) -> None:
        """The target did not take a batch."""
        ...

    def claim(self, copy: PartitionCopy) -> None:
        """There is something to write, and no claim in force."""
        ...


class Placement:
    """One fetch loop for each source broker, one link to each target broker, made when needed."""

    def __init__(
        self,
        source: Wire,
        target: Wire,
        events: Events,
        quota: Quota,
        now_ms: Clock,
        spawn: Spawn,
        *,
        read_committed: bool,
        linger_s: float,
    ) -> None:
        self._source = source
        self._target = target
        self._events = events
        self._quota = quota
        self._now_ms = now_ms
        self._spawn = spawn
        self._read_committed = read_committed
        self._linger_s = linger_s
        self._loops: dict[int, SourceLoop] = {}
        self._links: dict[int, TargetLink] = {}
        self._placed: dict[PartitionCopy, tuple[SourceLoop, TargetLink]] = {}

    def put(self, copy: PartitionCopy, source: Leader, target_node: int) -> None:
        """Fetch a partition from one node, and send it to another."""
        self.remove(copy)
        copy.note_leader(source)
        loop, link = self._loop(source.node), self._link(target_node)
        self._placed[copy] = loop, link
        loop.add(copy, target_node)
        if copy.can_send:
            link.data_waits(copy)

    def remove(self, copy: PartitionCopy) -> None:
        """Fetch no more for a partition."""
        placed = self._placed.pop(copy, None)
        if placed is not None:
            placed[0].remove(copy)

    def data_waits(self, copy: PartitionCopy) -> None:
        """Send what the partition has queued, if it is placed."""
        if copy in self._placed:
            self._placed[copy][1].data_waits(copy)

    def fetch_on(self, copy: PartitionCopy) -> None:
        """Include the partition in fetches again if it wants data and is placed."""
        if copy.wants_data and copy in self._placed:
            self._placed[copy][0].look_at(copy)

    def heard_s(self, copies: Iterable[PartitionCopy]) -> float | None:
        """Return when all source brokers of some partitions had answered, monotonic.

        None if a partition has no broker to fetch from, or without partitions.
        """
        placed = [self._placed.get(copy) for copy in copies]
        if not placed or None in placed:
            return None
        return min(found[0].answered_s for found in placed if found is not None)

    def _loop(self, node: int) -> SourceLoop:
        if node not in self._loops:
            committed = self._read_committed
            loop = SourceLoop(
                self._source.fetch_session(node, read_committed=committed),
                f"node {node} of {self._source.alias}",
                self._events.on_data,
                self._events.on_fetch_trouble,
                self._quota,
                read_committed=committed,
                linger_s=self._linger_s,
            )
            self._loops[node] = loop
            self._spawn(loop.run())
        return self._loops[node]

    def _link(self, node: int) -> TargetLink:
        if node not in self._links:
            self._links[node] = TargetLink(
                self._target,
                node,
                self._now_ms,
                self._events.on_progress,
                self._events.claim,
                self._events.on_refused,
            )
        return self._links[node]
