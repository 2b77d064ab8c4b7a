"""Topics, partitions and flows; the producers and open transactions of a partition."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from srm.errors import UsageError

_ALIAS: Final = re.compile(r"[A-Za-z0-9_\-]+")


class TopicPartition(NamedTuple):
    """One partition of one topic; a tuple, as it is the key of a lookup for each batch."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, name: str) -> Self:
        topic, _, partition = name.rpartition("-")
        return cls(topic, int(partition))


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """A replication flow: the ordered pair of cluster aliases ``source->target``."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"

    @property
    def reverse(self) -> Flow:
        return Flow(self.target, self.source)

    @property
    def options(self) -> str:
        """The options of a command that name both clusters."""
        return f"--source {self.source} --target {self.target}"

    @classmethod
    def parse(cls, text: str) -> Flow:
        """Parse ``A->B`` or ``A:B``; a shell takes ``>`` as a redirection."""
        joint = "->" if "->" in text else ":"
        source, found, target = (part.strip() for part in text.partition(joint))
        if not found or not _ALIAS.fullmatch(source) or not _ALIAS.fullmatch(target):
            raise UsageError(
                f"flow {text!r} is not of the form SOURCE->TARGET",
                "write 'P->B' with its quotes, as > redirects in a shell, or P:B",
            )
        if source == target:
            raise UsageError(f"flow {text!r} has the same cluster on both sides")
        return cls(source, target)


def topic_id_bytes(topic_id: str) -> bytes:
    """Turn Kafka's printed topic id (base64 without padding) into its 16 bytes."""
    return base64.urlsafe_b64decode(topic_id + "==")


def topic_id_text(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def abort_command(partition: TopicPartition, first_offset: int) -> str:
    """Return the command of Kafka's tools that aborts the transaction open from an offset on."""
    topic, number = partition
    at = f"--topic {topic} --partition {number} --start-offset {first_offset}"
    return f"kafka-transactions.sh --bootstrap-server HOST:PORT abort {at}"


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that holds up the last stable offset of a partition.

    ``transactional_id`` and ``age_ms`` (by this clock) are None if srm may not see them, or the
    transaction has no coordinator any more (a hanging one, KIP-664).
    """

    partition: TopicPartition
    first_offset: int
    producer_id: int
    producer_epoch: int
    transactional_id: str | None
    age_ms: int | None

    @property
    def owner(self) -> str:
        name = "unknown" if self.transactional_id is None else repr(self.transactional_id)
        age = "unknown" if self.age_ms is None else f"{self.age_ms / 1000:.0f} s"
        return f"producer id {self.producer_id}, transactional id {name}, age {age}"


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer with idempotence that a partition's leader tracks (KIP-664).

    The leader drops it ``producer.id.expiration.ms`` (a day) after its last record.
    ``last_timestamp_ms`` is of its last batch, by the producer's clock, or the broker's with
    LogAppendTime.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    last_timestamp_ms: int
    last_sequence: int

    @property
    def name(self) -> str:
        return f"{self.partition}#{self.producer_id}"
