"""Offsets for other programs: kafka-consumer-groups, and MirrorMaker 2's own positions."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from itertools import product

from srm.config.model import FlowConfig
from srm.domain.groups.mm2_records import CONNECTOR, Checkpoint, ConnectOffset, partition_of
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.text.amount import some
from srm.engine.cluster_ports import Cluster
from srm.engine.groups.checkpoints import read_checkpoints
from srm.errors import NotFoundError


def checkpoints(
    target: Cluster, flow: Flow, group: str | None = None, separator: str = "."
) -> tuple[Checkpoint, ...]:
    """Return the latest checkpoint of each group and partition; a former topic's is the start."""
    topic = internal_topics.checkpoints(flow.source, separator)
    where = f"{topic} on cluster {target.alias}"
    found = read_checkpoints(target, topic, target.topics())
    found.sort(key=lambda each: (each.group, each.topic_partition))
    if not found:
        raise NotFoundError(
            f"{where} holds no checkpoints: select groups and topics of {flow} and let it run, "
            f"srm status --flow '{flow}' shows what is missing"
        )
    chosen = tuple(each for each in found if group is None or each.group == group)
    if not chosen:
        known = some(list(dict.fromkeys(each.group for each in found)))
        raise NotFoundError(
            f"{where} holds no checkpoint of group {group!r}; it holds those of {known}"
        )
    return chosen


def to_csv(chosen: Iterable[Checkpoint], *, with_group: bool) -> str:
    """Return the rows that ``kafka-consumer-groups --reset-offsets --from-file`` reads.

    Columns are ``[group,]topic,partition,offset`` (on the target), without a header line.
    """
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for checkpoint in chosen:
        group = (checkpoint.group,) if with_group else ()
        place = checkpoint.topic_partition
        rows.writerow((*group, place.topic, place.partition, checkpoint.downstream_offset))
    return text.getvalue()


_Stored = tuple[bytes, int, ConnectOffset]
"""Key, as its bytes matter to Connect, and partition of a record, and its content."""


def offsets_topic(config: FlowConfig) -> str:
    """Return the offsets topic of MirrorMaker 2, by default a dedicated one's for any policy."""
    return config.mm2_offsets_topic or f"mm2-offsets.{config.flow.source}.internal"


def workers_group(config: FlowConfig) -> str:
    """Return the group of the workers of MirrorMaker 2, by default of a dedicated one."""
    return config.mm2_group or f"{config.flow.source}-mm2"


def read_mm2_positions(target: Cluster, topic: str, flow: Flow) -> dict[TopicPartition, int]:
    """Return the last copied offset of each source partition; nothing without the topic."""
    found: dict[TopicPartition, int] = {}
    for (_, place), (_, _, stored) in _read_stored(target, topic, flow).items():
        found[place] = max(stored.offset or 0, found.get(place, 0))
    return found


def write_mm2_positions(
    target: Cluster, topic: str, flow: Flow, positions: Mapping[TopicPartition, int]
) -> None:
    count = target.partition_counts().get(topic)
    if count is None:
        raise NotFoundError(
            f"{topic} does not exist on {target.alias}",
            "start MirrorMaker 2 once before the flow's topics exist, or name the topic of its "
            "workers in the file (offset.storage.topic)",
        )
    known = _read_stored(target, topic, flow)
    connectors = {connector for connector, _ in known} or {CONNECTOR}
    records: dict[int, dict[bytes, bytes | None]] = {}
    for connector, (place, position) in product(connectors, positions.items()):
        wanted = ConnectOffset(connector, flow.source, place, position - 1 if position else None)
        new = wanted.key(), partition_of(wanted.key(), count), wanted
        key, number, _ = known.get((connector, place), new)
        records.setdefault(number, {})[key] = wanted.value()
    for number, rows in records.items():
        target.compacted_topic(topic, number).write(rows)


def _read_stored(
    target: Cluster, topic: str, flow: Flow
) -> dict[tuple[str, TopicPartition], _Stored]:
    """Return what each connector has stored of each partition: it may have had several names."""
    found = {}
    for number in range(target.partition_counts().get(topic, 0)):
        for key, value in target.compacted_topic(topic, number).read().items():
            decoded = ConnectOffset.decode(key, value)
            if decoded is not None and decoded.cluster == flow.source:
                found[decoded.connector, decoded.partition] = key, number, decoded
    return found
