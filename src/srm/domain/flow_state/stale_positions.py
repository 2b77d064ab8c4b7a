"""Which positions nobody needs any more: what the driver may delete of the state topic.

A slot writes the last position of a partition that leaves it once, and what its former process told
stays behind too (:mod:`srm.domain.flow_state.slot_records`): the partition's next owner begins
there. Once a live process tells a position that readers would choose instead, which takes the new
owner to have read the old one, it is of no more use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from srm.domain.flow_state.replication_records import CopyId, PartitionPosition
from srm.domain.flow_state.reported_positions import newest_position
from srm.domain.text import json_records

COPIED_PREFIX = b"copied:"


@dataclass(frozen=True, slots=True, order=True)
class CopiedTopic:
    """A topic that a flow copies or has copied: something may be known of it in the state topics.

    Written before anything is, and deleted after everything is: so a driver knows what to look for,
    by name too, as brokers hide a topic that they do not let srm see. ``source_cluster`` and
    ``target_cluster`` are Kafka's ids of the clusters: a topic is not gone because an address leads
    to another cluster.
    """

    topic: str
    topic_id: str
    target_topic: str
    target_topic_id: str
    source_cluster: str
    target_cluster: str

    def key(self) -> bytes:
        """Encode the record key."""
        return COPIED_PREFIX + f"{self.topic_id}:{self.target_topic_id}".encode()

    def value(self) -> bytes:
        """Encode the record value."""
        return json_records.encode(self)

    @classmethod
    def decode(cls, value: bytes) -> CopiedTopic:
        """Decode a record value.

        Raises:
            IntegrityError: the value is not a copied topic.
        """
        return json_records.decode(cls, "copied topic", value)


@dataclass(frozen=True, slots=True)
class GoneTopics:
    """Ids of topics that do not exist any more, each on its side."""

    source: frozenset[str] = frozenset()
    target: frozenset[str] = frozenset()


def is_superseded(
    entry: PartitionPosition,
    live: Mapping[CopyId, Collection[PartitionPosition]],
    gone: GoneTopics,
    successors: Mapping[tuple[int, str], Iterable[PartitionPosition]],
) -> bool:
    """Whether a position that nobody writes any more is of no more use.

    Args:
        entry: the position.
        live: positions that live processes keep telling, by copy.
        gone: topics that do not exist any more.
        successors: the same as ``live``, by partition number and target topic id: a topic that was
            deleted and created again continues behind what its former self left on the target.
    """
    topic_id, number, target_id = entry.copy_id
    if target_id in gone.target:
        return True
    if topic_id in gone.source:
        return any(
            other.topic_id != topic_id and other.producer_id >= 0
            for other in successors.get((number, target_id), ())
        )
    told = live.get(entry.copy_id, ())
    return bool(told) and newest_position([*told, entry]) is not entry
