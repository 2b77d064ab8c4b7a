"""A flow's switch in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from srm.domain.flow_state.replication_records import PAUSE_KEY, Pause, read_pause
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import Cluster
from srm.engine.control.control_topics import until_not_fenced
from srm.errors import ConflictError


class FakeSwitch:
    """Pauses a flow by its record alone (implements :class:`srm.engine.ports.FlowSwitch`).

    Of two processes that change the pause at once one is fenced, and looks at the pause again.
    ``before_seal`` is what a slot that still runs does before its copies are taken from it.
    """

    def __init__(self, target: Cluster, source: str) -> None:
        self.sealed: list[TopicPartition] = []
        self.unsealable: dict[TopicPartition, str] = {}
        self.before_seal: Callable[[], None] = lambda: None
        self._target = target
        self._topic = internal_topics.replication(source)

    def pause(self, wanted: Pause, request: str | None = None) -> Pause | None:
        """See the port."""

        def join(current: Pause | None) -> Pause:
            if request is not None and (current is None or current.request != request):
                raise ConflictError("that pause is over, or replaced")
            return wanted if current is None else current.joined_by(wanted)

        return self._change(join)

    def seal(self, copies: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """See the port."""
        self.before_seal()
        self.sealed = [copy for copy in copies if copy not in self.unsealable]
        return {copy: why for copy, why in self.unsealable.items() if copy in copies}

    def resume(
        self, decided: Mapping[bytes, bytes] = MappingProxyType({}), request: str | None = None
    ) -> bool:
        """See the port."""

        def end(current: Pause | None) -> None:
            if current is not None and request not in {None, current.request}:
                raise ConflictError(f"paused again by {current.by}: {current.reason}")

        return self._change(end, decided) is not None

    def leave(self, move_id: str) -> None:
        """See the port."""
        self._change(lambda current: current and current.without(move_id))

    def _change(
        self,
        new: Callable[[Pause | None], Pause | None],
        decided: Mapping[bytes, bytes] = MappingProxyType({}),
    ) -> Pause | None:
        """Replace the pause as its driver does; return the one before."""

        def attempt() -> Pause | None:
            writer = self._target.control_writer(f"driver of {self._topic}")
            current = read_pause(self._target.compacted_topic(self._topic).read())
            wanted = new(current)
            if wanted != current:
                value = None if wanted is None else wanted.value()
                writer.write({self._topic: {**decided, PAUSE_KEY: value}})
            return current

        return until_not_fenced(f"pausing or resuming {self._topic}", attempt)
