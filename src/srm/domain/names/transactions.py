"""Producers of a partition, and open transactions with the command that ends one."""

from __future__ import annotations

from dataclasses import dataclass

from srm.domain.names.topics import TopicPartition


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that holds up the last stable offset of a partition.

    ``transactional_id`` is None if srm may not see it or the transaction has no coordinator any
    more (a hanging one, KIP-664). ``age_ms`` is by this machine's clock; None likewise.
    """

    partition: TopicPartition
    first_offset: int
    producer_id: int
    producer_epoch: int
    transactional_id: str | None
    age_ms: int | None

    @property
    def owner(self) -> str:
        """Producer, transactional id and age, for messages."""
        name = "unknown" if self.transactional_id is None else repr(self.transactional_id)
        age = "unknown" if self.age_ms is None else f"{self.age_ms / 1000:.0f} s"
        return f"producer id {self.producer_id}, transactional id {name}, age {age}"

    @property
    def command(self) -> str:
        """Command of Kafka's tools that aborts it."""
        place = f"--topic {self.partition.topic} --partition {self.partition.partition}"
        return (
            f"kafka-transactions.sh --bootstrap-server HOST:PORT abort {place} "
            f"--start-offset {self.first_offset}"
        )


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """An idempotent or transactional producer that a partition's leader tracks (KIP-664).

    The leader drops it ``producer.id.expiration.ms`` (a day) after its last record, and does not
    track producers without idempotence. ``last_timestamp_ms`` is the timestamp of its last batch,
    by the producer's clock, or the broker's where the topic has LogAppendTime.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    last_timestamp_ms: int
    last_sequence: int

    @property
    def name(self) -> str:
        """Partition and producer id, as a key."""
        return f"{self.partition}#{self.producer_id}"
