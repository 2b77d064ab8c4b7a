"""Leaders that the partitions of a slot are fetched from and sent to."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from srm.replication.copy.fetching import SourceLoop
from srm.replication.copy.quota import Quota
from srm.replication.copy.sending import TargetLink
from srm.replication.partition.partition import PartitionCopy
from srm.replication.ports import Clock, Leader, Wire

if TYPE_CHECKING:
    from srm.replication.copy.lifecycle import Lifecycle

Spawn = Callable[[Coroutine[Any, Any, None]], None]


@dataclass(eq=False)
class Placement:
    """One fetch loop for each source broker, one link to each target broker, made when needed."""

    source: Wire
    target: Wire
    life: Lifecycle
    quota: Quota
    now_ms: Clock
    spawn: Spawn
    _: KW_ONLY
    read_committed: bool
    linger_s: float
    _loops: dict[int, SourceLoop] = field(default_factory=dict)
    _links: dict[int, TargetLink] = field(default_factory=dict)
    _placed: dict[PartitionCopy, tuple[SourceLoop, TargetLink]] = field(default_factory=dict)

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
        """Return when the last source broker had answered, monotonic; None if one is missing."""
        placed = [self._placed.get(copy) for copy in copies]
        if not placed or None in placed:
            return None
        return min(found[0].answered_s for found in placed if found is not None)

    def _loop(self, node: int) -> SourceLoop:
        if node not in self._loops:
            committed = self.read_committed
            loop = SourceLoop(
                self.source.fetch_session(node, read_committed=committed),
                f"node {node} of {self.source.alias}",
                self.life.on_data,
                self.life.on_fetch_trouble,
                self.quota,
                read_committed=committed,
                linger_s=self.linger_s,
            )
            self._loops[node] = loop
            self.spawn(loop.run())
        return self._loops[node]

    def _link(self, node: int) -> TargetLink:
        if node not in self._links:
            self._links[node] = TargetLink(
                self.target,
                node,
                self.now_ms,
                self.life.on_progress,
                self.life.claim,
                self.life.on_refused,
            )
        return self._links[node]
