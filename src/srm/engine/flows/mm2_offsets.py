"""MirrorMaker 2's own positions, in the offsets topic of its Connect workers on a flow's target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from srm.domain.groups.connect_offsets import CONNECTOR, ConnectOffset, partition_of
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.cluster_ports import Cluster
from srm.errors import NotFoundError


@dataclass(frozen=True, slots=True)
class _Stored:
    """A record as it is kept: its bytes matter to Connect."""

    key: bytes
    partition: int
    decoded: ConnectOffset


def offsets_topic(flow: Flow) -> str:
    """Return the offsets topic of a dedicated MirrorMaker 2, whatever the policy."""
    return f"mm2-offsets.{flow.source}.internal"


def workers_group(flow: Flow) -> str:
    """Return the group of the workers of a dedicated MirrorMaker 2."""
    return f"{flow.source}-mm2"


def read(target: Cluster, topic: str, flow: Flow) -> dict[TopicPartition, int]:
    """Return the last copied offset of each source partition; nothing without the topic."""
    return {
        place: stored.decoded.offset
        for place, stored in _read_stored(target, topic, flow).items()
        if stored.decoded.offset is not None
    }


def write(target: Cluster, topic: str, flow: Flow, positions: Mapping[TopicPartition, int]) -> None:
    """Let MirrorMaker 2 continue at these source offsets."""
    count = target.partition_counts().get(topic)
    if count is None:
        raise NotFoundError(
            f"{topic} does not exist on {target.alias}",
            "start MirrorMaker 2 once before the flow's topics exist, or name the topic of its "
            "workers with --offsets-topic",
        )
    known = _read_stored(target, topic, flow)
    connector = next((one.decoded.connector for one in known.values()), CONNECTOR)
    records: dict[int, dict[bytes, bytes | None]] = {}
    for place, position in positions.items():
        wanted = ConnectOffset(connector, flow.source, place, position - 1 if position else None)
        kept = known.get(place)
        key = kept.key if kept is not None else wanted.key()
        number = kept.partition if kept is not None else partition_of(key, count)
        records.setdefault(number, {})[key] = wanted.value()
    for number, rows in records.items():
        target.compacted_topic(topic, number).write(rows)


def _read_stored(target: Cluster, topic: str, flow: Flow) -> dict[TopicPartition, _Stored]:
    found = {}
    for number in range(target.partition_counts().get(topic, 0)):
        for key, value in target.compacted_topic(topic, number).read().items():
            decoded = ConnectOffset.decode(key, value)
            if decoded is not None and decoded.cluster == flow.source:
                found[decoded.partition] = _Stored(key, number, decoded)
    return found
