"""A compacted topic in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from srm.errors import NotFoundError


@dataclass
class FakePartition:
    """One partition: its first offset, the one after its last, and keyed records if it has any."""

    start: int = 0
    end: int = 0
    records: list[tuple[bytes, bytes | None]] = field(default_factory=list)

    def append(self, key: bytes, value: bytes | None) -> None:
        """Add a keyed record at the end."""
        self.records.append((key, value))
        self.end += 1


class FakeCompactedTopic:
    """One partition of a compacted topic (implements the engine's CompactedTopic).

    Args:
        name: topic and partition, for messages.
        find: returns the partition, None while it does not exist; raises when the cluster is down.
    """

    def __init__(self, name: str, find: Callable[[str], FakePartition | None]) -> None:
        self._name = name
        self._find = find

    def read(self) -> dict[bytes, bytes]:
        """Return the latest value of each key; no topic reads empty."""
        partition = self._find(f"reading {self._name}")
        table: dict[bytes, bytes] = {}
        for key, value in partition.records if partition else ():
            table.pop(key, None)
            if value is not None:
                table[key] = value
        return table

    def write(self, records: Mapping[bytes, bytes | None]) -> None:
        """Append in the given order; None is a tombstone.

        Raises:
            NotFoundError: the topic does not exist.
        """
        if not records:
            return
        partition = self._find(f"writing {self._name}")
        if partition is None:
            raise NotFoundError(f"writing {self._name}: unknown topic or partition")
        for key, value in records.items():
            partition.append(key, value)
