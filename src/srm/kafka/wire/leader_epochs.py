"""OffsetForLeaderEpoch version 3 (KIP-320), which aiokafka does not have: Kafka 2.3 and later.

Layouts: OffsetForLeaderEpochRequest.json and OffsetForLeaderEpochResponse.json of Apache Kafka.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int16, Int32, Int64, Schema, String

from srm.domain.topics import TopicPartition

_CONSUMER = -1
_ANY_EPOCH = -1


class _EpochEndResponse(Response):
    API_KEY = 23
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader_epoch", Int32),
                        ("end_offset", Int64),
                    ),
                ),
            ),
        ),
    )


class _EpochEndStruct(RequestStruct):
    API_KEY = 23
    API_VERSION = 3
    RESPONSE_TYPE = _EpochEndResponse
    SCHEMA = Schema(
        ("replica_id", Int32),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                (
                    "partitions",
                    Array(
                        ("partition", Int32),
                        ("current_leader_epoch", Int32),
                        ("leader_epoch", Int32),
                    ),
                ),
            ),
        ),
    )


class EpochEndRequest(Request[_EpochEndStruct]):
    """Asks where the records of leader epochs end in the leader's logs, by partition."""

    API_KEY = 23

    def __init__(self, epochs: Mapping[TopicPartition, int]) -> None:
        topics: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for partition, epoch in epochs.items():
            topics[partition.topic].append((partition.partition, _ANY_EPOCH, epoch))
        self._topics = list(topics.items())

    def build(self, request_struct_class: type[_EpochEndStruct]) -> _EpochEndStruct:
        """Make the request; called by aiokafka with the class of the version it chose."""
        return request_struct_class(_CONSUMER, self._topics)
