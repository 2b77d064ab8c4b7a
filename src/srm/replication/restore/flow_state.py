"""State topics of both flows of a restore: what they say of it, and whether it was broken off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from srm.domain.flow_state import replication_state
from srm.domain.flow_state.replication_records import PartitionPosition, Pause, read_pause
from srm.domain.names.topics import Flow
from srm.domain.offset_map.map_records import CopyId
from srm.domain.offset_map.offset_map import Position
from srm.domain.recovery.restore import RESTORE_KEY, RestoredPartition, RestoreRecord, restore_flow
from srm.domain.text.documents import decode_or_none
from srm.engine.cluster_ports import Cluster, TopicDescription
from srm.engine.flows.target_topics import StateTopic
from srm.engine.ports import FlowContext


@dataclass(frozen=True)
class RestoreState:
    """Content of the state topic of a flow."""

    records: Mapping[bytes, bytes]
    state: replication_state.ReplicationState

    @classmethod
    def read(cls, target: Cluster, flow: Flow) -> RestoreState:
        records = StateTopic(target, flow.source).read()
        return cls(records, replication_state.decode_state(records))

    def position(self, source: TopicDescription, number: int, target_id: str) -> Position | None:
        newest = replication_state.newest_position(
            self.positions.get((source.topic_id, number, target_id), ())
        )
        return newest.position if newest else None

    @cached_property
    def positions(self) -> Mapping[CopyId, list[PartitionPosition]]:
        return replication_state.positions_by_copy(self.state.reports)

    @property
    def pause(self) -> Pause | None:
        return read_pause(self.records)

    @property
    def restoring(self) -> RestoreRecord | None:
        """The record a restore wrote at its start; None if it is damaged."""
        return decode_or_none(self.records.get(RESTORE_KEY), RestoreRecord.decode)


def open_restores(forward: FlowContext) -> tuple[str, ...]:
    """Return the source's topics with an unfinished restore, which would be copied twice."""
    flow = forward.config.flow
    own = RestoreState.read(forward.source, restore_flow(flow))
    if own.restoring is None:
        return ()
    known, names = RestoreState.read(forward.target, flow), forward.config.names
    begun = own.restoring.topics if own.restoring.is_for(known.pause) else {}
    copies, originals = forward.target.topics(), forward.source.topics()
    return tuple(
        f"the restore of topic {name} was interrupted: finish it (srm restore --from {flow.target} "
        f"--to {flow.source} --topic {name}), or delete the topic on {flow.source}"
        for name, original in sorted(originals.items())
        if (copy := copies.get(names.remote(name))) is not None
        and (
            begun.get(name) == original.topic_id
            or any(position for position, _ in progress(own, known, original, copy))
        )
        and not all(
            RestoredPartition((0, 0), restored, forward=copied).is_handed_over
            for restored, copied in progress(own, known, original, copy)
        )
    )


def progress(
    own: RestoreState, forward: RestoreState, original: TopicDescription, copy: TopicDescription
) -> list[tuple[Position | None, Position | None]]:
    """Return the restored offset of each partition, and the resumed flow's copied offset."""
    return [
        (own.position(copy, n, original.topic_id), forward.position(original, n, copy.topic_id))
        for n in range(copy.partitions)
    ]
