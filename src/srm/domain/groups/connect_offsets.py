"""Source offsets of MirrorMaker 2: the records of Kafka Connect's offsets topic.

::

    key     ["MirrorSourceConnector",{"cluster":"P","partition":0,"topic":"Payments"}]
    value   {"offset":41}                                  the last copied record

JSON without schemas. Connect looks keys up by their bytes, in the order of a Java HashMap; so a
known key is written again as it is. Its producer places a key by murmur2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from srm.domain.names.topics import TopicPartition

CONNECTOR: Final = "MirrorSourceConnector"
"""Name of the connector in a dedicated MirrorMaker 2."""
_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class ConnectOffset:
    """Source offset: connector, source partition, last copied record (None: a tombstone)."""

    connector: str
    cluster: str
    partition: TopicPartition
    offset: int | None

    def key(self) -> bytes:
        """Encode the record key."""
        place = {
            "cluster": self.cluster,
            "partition": self.partition.partition,
            "topic": self.partition.topic,
        }
        return _json([self.connector, place])

    def value(self) -> bytes | None:
        """Encode the record value."""
        return None if self.offset is None else _json({"offset": self.offset})

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> ConnectOffset | None:
        """Decode a record, None if it is of another connector's form."""
        try:
            connector, place = json.loads(key)
            offset = json.loads(value)["offset"]
            partition = TopicPartition(place["topic"], place["partition"])
            found = cls(str(connector), place["cluster"], partition, int(offset))
        except (ValueError, TypeError, KeyError):
            return None
        return found if _is_place(place) else None


def _is_place(place: Mapping[str, Any]) -> bool:
    kinds = {"cluster": str, "topic": str, "partition": int}
    return place.keys() == kinds.keys() and all(
        isinstance(place[name], kind) for name, kind in kinds.items()
    )


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition into which Kafka's default partitioner puts a key."""
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    """Hash as org.apache.kafka.common.utils.Utils does."""
    hashed = (_SEED ^ len(data)) & _MASK
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _FACTOR & _MASK
        word = (word ^ word >> 24) * _FACTOR & _MASK
        hashed = (hashed * _FACTOR & _MASK) ^ word
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _FACTOR & _MASK
    hashed = (hashed ^ hashed >> 13) * _FACTOR & _MASK
    return hashed ^ hashed >> 15
