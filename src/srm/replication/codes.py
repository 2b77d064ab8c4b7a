"""Kafka error codes the data plane acts on, by what they mean for a partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from srm.errors import AuthorizationError

NONE: Final = 0
NO_ANSWER: Final = -1000
"""Ours: the connection broke, so the fate of the batch is unknown."""
UNEXPECTED_OFFSET: Final = -1001
"""Ours: acknowledged, but not at the offset after our last record."""
UNREADABLE: Final = -1002
"""Ours: the fetched bytes are not a batch that can be copied."""
OFFSET_OUT_OF_RANGE: Final = 1
CORRUPT: Final = 2
UNKNOWN_TOPIC: Final = 3
TOPIC_RIGHT_MISSING: Final = 29
NO_ACCESS: Final = 58
"""SASL_AUTHENTICATION_FAILED, and ours for whatever else keeps srm out of a cluster."""

FENCED: Final = frozenset({47, 49, 90})
"""INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED: fenced by another owner."""

LEADERSHIP: Final = frozenset({5, 6, 9, 56, 74, 75})
"""Leader moved, epoch fenced or unknown, or KAFKA_STORAGE_ERROR: another replica leads soon."""

COORDINATOR: Final = frozenset({14, 15, 16})

TOPIC_GONE: Final = frozenset({3, 100, 103})
"""Topic or its id is unknown; also said by a new leader that has not heard of the topic yet."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Name of an error code, and the action for it if there is one."""

    name: str
    action: str = ""

    def describe(self, message: str = "") -> str:
        return f"{self.name} {message}".strip()


REFUSED: Final[Mapping[int, Refusal]] = {
    2: Refusal(
        "CORRUPT_MESSAGE: damaged on the source, or on the way", "compare the source's replicas"
    ),
    10: Refusal(
        "MESSAGE_TOO_LARGE: above the copy's max.message.bytes, counted in its compression.type",
        "raise max.message.bytes of the topic on both clusters",
    ),
    17: Refusal("INVALID_TOPIC_EXCEPTION"),
    18: Refusal("RECORD_LIST_TOO_LARGE", "raise segment.bytes of the target topic"),
    29: Refusal("TOPIC_AUTHORIZATION_FAILED"),
    31: Refusal(
        "CLUSTER_AUTHORIZATION_FAILED",
        "grant Write on the topic, or IdempotentWrite on the cluster",
    ),
    32: Refusal(
        "INVALID_TIMESTAMP", "see message.timestamp.before.max.ms and after.max.ms of the target"
    ),
    43: Refusal("UNSUPPORTED_FOR_MESSAGE_FORMAT"),
    44: Refusal("POLICY_VIOLATION"),
    58: Refusal("SASL_AUTHENTICATION_FAILED", "check the credentials"),
    76: Refusal("UNSUPPORTED_COMPRESSION_TYPE"),
    87: Refusal("INVALID_RECORD"),
}
"""Trying again at once cannot help: the partition stops, with this reason."""

TOO_LARGE: Final = frozenset({10, 18})
"""MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE: the same records may be taken in smaller batches."""

OF_A_RECORD: Final = TOO_LARGE | frozenset({32, 87})
"""A record of the batch is to blame; the others are taken without it."""


def missing_right(operation: str, topic: str, cluster: str) -> AuthorizationError:
    return AuthorizationError(
        f"{REFUSED[TOPIC_RIGHT_MISSING].name} on {cluster}",
        f"grant {operation} on topic {topic} to srm's principal (docs/security.md)",
    )
