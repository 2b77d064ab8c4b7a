"""Transactions and producers of a cluster in memory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from srm.domain.names.topics import TopicPartition
from srm.domain.names.transactions import ActiveProducer, OpenTransaction
from srm.kafka.admin.transactions import largest


@dataclass
class FakeTransaction:
    """An open transaction: where it began in which partition."""

    transactional_id: str
    producer_id: int
    age_ms: int
    first_offsets: dict[TopicPartition, int] = field(default_factory=dict)


class FakeTransactions:
    """All transactions of one cluster, and the producers that its leaders remember.

    ``readable`` is the right to see transactional ids and the log of transactions.
    """

    def __init__(self) -> None:
        self.readable = True
        self._open: dict[str, FakeTransaction] = {}
        self._ids: dict[str, int] = {}
        self._seen: set[frozenset[str]] = set()
        self._producers: dict[tuple[TopicPartition, int], ActiveProducer] = {}

    def add(self, name: str, place: TopicPartition, offset: int, age_ms: int) -> None:
        """Let a transaction, that is opened where it is not, write into a partition."""
        producer_id = self._ids.setdefault(name, 1000 + len(self._ids))
        found = self._open.setdefault(name, FakeTransaction(name, producer_id, age_ms))
        found.first_offsets.setdefault(place, offset)
        self._seen.add(frozenset(p.topic for p in found.first_offsets))
        self.remember(place, producer_id, 0)

    def end(self, name: str) -> tuple[TopicPartition, ...]:
        """End a transaction; return the partitions that get a marker."""
        found = self._open.pop(name, None)
        return tuple(found.first_offsets) if found else ()

    def remember(self, place: TopicPartition, producer_id: int, timestamp_ms: int) -> None:
        """Let a producer have written; its sequence goes up."""
        known = self._producers.get((place, producer_id))
        sequence = 0 if known is None else known.last_sequence + 1
        self._producers[place, producer_id] = ActiveProducer(
            place, producer_id, 0, timestamp_ms, sequence
        )

    def stable_end(self, place: TopicPartition, end: int) -> int:
        """Return the last stable offset of a partition that ends at ``end``."""
        return min([t.first_offset for t in self.open([place]).get(place, ())], default=end)

    def open(
        self, places: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[OpenTransaction, ...]]:
        """Return the open transactions of the partitions that have any."""
        found: dict[TopicPartition, list[OpenTransaction]] = {}
        for transaction in self._open.values():
            for place, offset in transaction.first_offsets.items():
                if place in places:
                    seen = OpenTransaction(
                        place,
                        offset,
                        transaction.producer_id,
                        0,
                        transaction.transactional_id if self.readable else None,
                        transaction.age_ms if self.readable else None,
                    )
                    found.setdefault(place, []).append(seen)
        return {
            place: tuple(sorted(seen, key=lambda t: t.first_offset))
            for place, seen in sorted(found.items())
        }

    def active(
        self, places: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """Return the remembered producers of the partitions that have any."""
        found: dict[TopicPartition, list[ActiveProducer]] = {}
        for (place, _), producer in sorted(self._producers.items()):
            if place in places:
                found.setdefault(place, []).append(producer)
        return {place: tuple(seen) for place, seen in found.items()}

    def written_together(self) -> tuple[frozenset[str], ...] | None:
        """Return the largest sets of topics that were written together."""
        return largest(self._seen) if self.readable else None
