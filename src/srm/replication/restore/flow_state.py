"""What a restore reads of the state topics of both flows."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from srm.domain.flow_state.pause import Pause, read_pause
from srm.domain.flow_state.replication_records import CopyId, PartitionPosition
from srm.domain.flow_state.replication_state import ReplicationState, decode_state
from srm.domain.flow_state.reported_positions import newest_position, positions_by_copy
from srm.domain.names.topics import Flow
from srm.domain.offset_map.offset_map import Position
from srm.domain.recovery.restore import RESTORE_KEY, RestoreRecord
from srm.engine.flows.state_topic import StateTopic
from srm.engine.ports import Cluster, TopicDescription
from srm.errors import IntegrityError

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FlowState:
    """What the state topic of a flow says."""

    records: Mapping[bytes, bytes]
    state: ReplicationState

    @classmethod
    def read(cls, target: Cluster, flow: Flow) -> FlowState:
        """Read it."""
        records = StateTopic(target, flow.source).read()
        return cls(records, decode_state(records))

    def position(self, source: TopicDescription, number: int, target_id: str) -> Position | None:
        """Return how far a partition is copied, None where nobody tells."""
        newest = newest_position(self.positions.get((source.topic_id, number, target_id), ()))
        return newest.position if newest else None

    @cached_property
    def positions(self) -> Mapping[CopyId, list[PartitionPosition]]:
        """What slots have reported of each copy."""
        return positions_by_copy(self.state.reports)

    @property
    def pause(self) -> Pause | None:
        """Why nothing is copied."""
        return read_pause(self.records)

    @property
    def restoring(self) -> RestoreRecord | None:
        """What a restore has written when it began; one that is damaged is none."""
        try:
            value = self.records.get(RESTORE_KEY)
            return RestoreRecord.decode(value) if value is not None else None
        except IntegrityError as error:
            _logger.warning("passed over: %s", error)
            return None
