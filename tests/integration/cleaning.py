"""Has the log cleaner of real brokers run."""

from __future__ import annotations

from collections.abc import Mapping

from tests.overrides import overrides
from tests.waiting import eventually

from srm.domain.offset_map.map_records import BlockKey
from srm.engine.cluster_ports import Cluster

_FILLER = BlockKey("A" * 22, 0, 0, (0, 0)).encode()
_AT_ONCE = {
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "100",
}


def write_cleaned(
    cluster: Cluster, topic: str, partition: int, records: Mapping[bytes, bytes | None]
) -> None:
    """Write records, and wait until what they replace is gone from its places in the log."""
    table = cluster.compacted_topic(topic, partition)
    places: dict[int, bytes] = {}

    def note(place: int, key: bytes, _value: bytes | None) -> None:
        if key in records:
            places[place] = key

    table.scan(note)
    table.write(records)
    before = overrides(cluster, [topic])[topic]
    cluster.alter_topic_configs({topic: _AT_ONCE})

    def is_gone() -> bool:
        table.write({_FILLER: None})  # a segment ends when something is written after its time
        return not table.at(places)

    try:
        eventually(is_gone, f"{topic}-{partition} is cleaned", 180)
    finally:
        cluster.alter_topic_configs({topic: {name: before.get(name) for name in _AT_ONCE}})
