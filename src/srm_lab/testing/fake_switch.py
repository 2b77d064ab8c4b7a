"""A flow's switch in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from srm.domain.flow_state.replication_records import PAUSE_KEY, Pause, read_pause
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import Cluster
from srm.errors import ConflictError


class FakeSwitch:
    """Pauses a flow by its record alone (implements :class:`srm.engine.ports.FlowSwitch`).

    ``before_seal`` is what a slot that still runs does before its copies are taken from it.
    """

    def __init__(self, target: Cluster, source: str) -> None:
        self.sealed: list[TopicPartition] = []
        self.unsealable: dict[TopicPartition, str] = {}
        self.before_seal: Callable[[], None] = lambda: None
        self._table = target.compacted_topic(internal_topics.replication(source))

    def pause(self, wanted: Pause, request: str | None = None) -> None:
        """See the port."""
        current = read_pause(self._table.read())
        if request is not None and (current is None or current.request != request):
            raise ConflictError("that pause is over, or replaced")
        new = wanted if current is None else current.joined_by(wanted)
        self._table.write({PAUSE_KEY: new.value()})

    def seal(self, copies: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """See the port."""
        self.before_seal()
        self.sealed = [copy for copy in copies if copy not in self.unsealable]
        return {copy: why for copy, why in self.unsealable.items() if copy in copies}

    def resume(
        self, decided: Mapping[bytes, bytes] = MappingProxyType({}), request: str | None = None
    ) -> bool:
        """See the port."""
        current = read_pause(self._table.read())
        if current is None:
            return False
        if request is not None and current.request != request:
            raise ConflictError(f"paused again by {current.by}: {current.reason}")
        self._table.write({**decided, PAUSE_KEY: None})
        return True

    def leave(self, move_id: str) -> None:
        """See the port."""
        current = read_pause(self._table.read())
        if current is not None and move_id in current.moves:
            left = current.without(move_id)
            self._table.write({PAUSE_KEY: None if left is None else left.value()})
