"""Ledger of group offsets that srm itself wrote on a cluster, kept on that cluster.

Flows run both ways, so the opposite flow reads an offset that one flow writes as a commit of the
group. Without the ledger srm would carry its own writes back as progress of consumers. And it would
overwrite an operator's rewind with the offset that the other side still has.

An entry is written *before* the offset, with the old and the new offset. Until it is settled (the
offset was read back) a crash can have left either value, so both count as srm's. Afterwards only
the new one does. The topic is ``__srm-ledger``: one partition, compacted, JSON.

An offset is valid in one log only, so an entry has its topic's id. An entry of a topic that was
deleted and re-created does not count.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from srm.domain.names.topics import TopicPartition
from srm.errors import IntegrityError

_log = logging.getLogger(__name__)
_TYPES: Final[Mapping[str, Any]] = {
    "topic_id": str,
    "previous": int | None,
    "intended": int,
    "origin": str,
    "operation": str,
    "previous_own": bool,
    "settled": bool,
    "progress": dict,
    "time_ms": int,
}
"""Fields of a record's value."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One write of a group offset by srm.

    ``topic_id`` is that of the topic on the cluster of the ledger.
    ``previous`` is the offset before the write (None: the group had none).
    ``previous_own`` is true if srm had written that one too.
    ``origin`` is the alias of the cluster whose commit was carried over.
    ``progress``: for each source the offset that its flow alone would set. Where several flows copy
    into one name, the group has read what is before the lowest of these.
    ``operation`` is the run or move that wrote it; ``settled`` is true once it was read back.
    ``time_ms`` is the timestamp of its record, which brokers set; 0 before it is written.
    """

    group: str
    topic_partition: TopicPartition
    topic_id: str
    previous: int | None
    intended: int
    origin: str
    operation: str
    previous_own: bool = False
    settled: bool = False
    time_ms: int = 0
    progress: Mapping[str, int] = field(default_factory=dict)

    def owns(self, offset: int) -> bool:
        """Return True if a committed offset is this write, not one of a consumer or operator."""
        return offset == self.intended or (not self.settled and offset == self.previous)

    def may_lower(self, offset: int) -> bool:
        """Return True if lowering a committed offset certainly undoes no commit of a consumer."""
        return offset == self.intended or (self.previous_own and self.owns(offset))

    def as_settled(self) -> LedgerEntry:
        """Return the entry after its write was read back, ready to be written."""
        return replace(self, settled=True, time_ms=0)

    def key(self) -> bytes:
        """Encode the record key."""
        return ledger_key(self.group, self.topic_partition)

    def value(self) -> bytes:
        """Encode the record value; a rewritten entry keeps the time of its first record."""
        fields = {name: getattr(self, name) for name in _TYPES}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, key: bytes, value: bytes, timestamp_ms: int = 0) -> LedgerEntry:
        """Decode one record of the ledger topic; ignore fields of later versions."""
        try:
            group, topic, partition = json.loads(key)
            raw = json.loads(value)
            fields = {name: _of_type(raw[name], kind) for name, kind in _TYPES.items()}
            fields["time_ms"] = fields["time_ms"] or timestamp_ms
            place = TopicPartition(_of_type(topic, str), _of_type(partition, int))
            return cls(_of_type(group, str), place, **fields)
        except (ValueError, TypeError, KeyError) as error:
            raise IntegrityError(
                f"ledger record with key {key[:80]!r} is damaged ({error!r}): "
                "delete the record or restore the topic __srm-ledger"
            ) from error


def ledger_key(group: str, partition: TopicPartition) -> bytes:
    """Encode the key of one (group, partition)."""
    return json.dumps([group, partition.topic, partition.partition], separators=(",", ":")).encode()


def all_entries(records: Mapping[bytes, bytes]) -> Iterator[LedgerEntry]:
    """Decode all readable records, also those of deleted topics."""
    for key, value in records.items():
        with suppress(IntegrityError):
            yield LedgerEntry.decode(key, value)


class GroupLedger:
    """All valid entries of one cluster, by group and partition as named on that cluster.

    Entries are decoded on access: the ledger has those of all moves and syncs ever, and a caller
    needs those of a few groups. A damaged record is skipped.

    ``rows``: the records of the whole topic, each value with its timestamp in epoch milliseconds.
    ``topic_ids``: id of each topic of the cluster by its name, read before the records.
    """

    def __init__(
        self, rows: Mapping[bytes, tuple[bytes, int]], topic_ids: Mapping[str, str]
    ) -> None:
        self._rows = dict(rows)
        self._topic_ids = topic_ids

    def topic_id(self, topic: str) -> str:
        """Return the id of a topic, empty if the cluster has no such topic."""
        return self._topic_ids.get(topic, "")

    def entries(self) -> Iterator[LedgerEntry]:
        """Decode all entries."""
        found = (self._find(key) for key in tuple(self._rows))
        return (entry for entry in found if entry is not None)

    def entry(self, group: str, partition: TopicPartition) -> LedgerEntry | None:
        """Return srm's latest write for a group and partition, None if it never wrote."""
        return self._find(ledger_key(group, partition))

    def _find(self, key: bytes) -> LedgerEntry | None:
        row = self._rows.get(key)
        if row is None:
            return None
        try:
            found = LedgerEntry.decode(key, *row)
        except IntegrityError as error:
            _log.error("%s; the record is skipped", error)
            del self._rows[key]  # log it only once
            return None
        return found if found.topic_id == self.topic_id(found.topic_partition.topic) else None


def _of_type(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is not {kind}")
    return value
