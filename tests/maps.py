"""Maps of a flow, put together from all records of its map topic."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from srm.domain.flow_state.replication_state import ReplicationState
from srm.domain.offset_map.map_tree import Placed
from srm.engine.map_reader import maps_of_records, newest_copies, present_targets
from srm.engine.ports import FlowMaps


def assemble(
    topic_ids: Mapping[str, str],
    target_ids: Collection[str],
    state: ReplicationState,
    records: Mapping[bytes, Placed],
) -> FlowMaps:
    """Build complete maps; ``state`` is read before the records."""
    targets = present_targets(topic_ids, target_ids, state)
    copies = newest_copies(topic_ids, target_ids, state)
    maps, errors = maps_of_records(topic_ids, targets, copies, records)
    told, noted = state.statuses_of(topic_ids), state.notes_of(topic_ids)
    return FlowMaps(maps, state.reports, told, errors, noted)
