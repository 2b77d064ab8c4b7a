"""The ledger: group offsets that srm itself wrote on a cluster, kept on that cluster.

Flows run both ways, so an offset that one flow writes is read by the opposite flow as a commit of
the group. Without a memory of its own writes srm would carry them back as if consumers had made
progress, and an operator's rewind would be overwritten with what the other side still remembers.

An entry is written *before* the offset and says what was there and what shall be there. Until it
is settled (the offset was read back) a crash can have left either value, so both count as ours;
afterwards only the intended one does. It is kept in ``srm-ledger.internal``: one partition,
compacted, JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from srm.domain.topics import TopicPartition
from srm.errors import IntegrityError


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One write of a group offset by srm.

    ``previous`` is the offset found before (None: the group had none) and ``previous_own`` whether
    srm had written that one too; ``origin`` is the alias of the cluster whose commit was carried
    over, ``operation`` the run or move that wrote it, ``settled`` whether the write was read back.
    """

    group: str
    topic_partition: TopicPartition
    previous: int | None
    intended: int
    origin: str
    operation: str
    time_ms: int
    previous_own: bool = False
    settled: bool = False

    def owns(self, offset: int) -> bool:
        """Whether a committed offset is this write, not a commit of a consumer or an operator."""
        return offset == self.intended or (not self.settled and offset == self.previous)

    def may_lower(self, offset: int) -> bool:
        """Whether a committed offset may be lowered: surely no commit of a consumer is undone."""
        return offset == self.intended or (self.previous_own and self.owns(offset))

    def as_settled(self) -> LedgerEntry:
        """Return the entry after its write was read back."""
        return replace(self, settled=True)

    def key(self) -> bytes:
        """Encode the record key."""
        return ledger_key(self.group, self.topic_partition)

    def value(self) -> bytes:
        """Encode the record value."""
        fields = {
            "previous": self.previous,
            "intended": self.intended,
            "origin": self.origin,
            "operation": self.operation,
            "time_ms": self.time_ms,
            "previous_own": self.previous_own,
            "settled": self.settled,
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> LedgerEntry:
        """Decode one record of the ledger topic; fields of later versions are passed over.

        Raises:
            IntegrityError: the record is not a ledger entry.
        """
        try:
            group, topic, partition = json.loads(key)
            raw: dict[str, Any] = json.loads(value)
            previous = raw["previous"]
            return cls(
                _text(group),
                TopicPartition(_text(topic), int(partition)),
                None if previous is None else int(previous),
                int(raw["intended"]),
                _text(raw["origin"]),
                _text(raw["operation"]),
                int(raw["time_ms"]),
                bool(raw["previous_own"]),
                bool(raw["settled"]),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise IntegrityError(
                f"ledger record with key {key[:80]!r} is damaged ({error!r}): "
                "delete the record or restore the topic srm-ledger.internal"
            ) from error


def ledger_key(group: str, partition: TopicPartition) -> bytes:
    """Encode the key of one (group, partition)."""
    return json.dumps([group, partition.topic, partition.partition], separators=(",", ":")).encode()


class Ledger:
    """All entries of one cluster, by group and partition as named on that cluster.

    An entry is decoded when it is asked for: there are as many as all moves and syncs have ever
    written, and a look asks for those of a few groups.
    """

    def __init__(self, entries: Iterable[LedgerEntry] = ()) -> None:
        self._records: Mapping[bytes, bytes] = {entry.key(): entry.value() for entry in entries}

    @classmethod
    def of(cls, records: Mapping[bytes, bytes]) -> Ledger:
        """Take the records of the whole topic."""
        ledger = cls()
        ledger._records = records
        return ledger

    def entries(self) -> Iterator[LedgerEntry]:
        """Decode all entries; those that are damaged are left out."""
        for key, value in self._records.items():
            with suppress(IntegrityError):
                yield LedgerEntry.decode(key, value)

    def entry(self, group: str, partition: TopicPartition) -> LedgerEntry | None:
        """Return srm's latest write for a group and partition, None where it never wrote.

        Raises:
            IntegrityError: its record is damaged.
        """
        key = ledger_key(group, partition)
        value = self._records.get(key)
        return None if value is None else LedgerEntry.decode(key, value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value
