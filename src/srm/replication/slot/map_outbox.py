"""Records of the offset map on their way to its topic: the last version of each, until it is there.

One partition of the map topic that cannot be written keeps no other one waiting, and nothing piles
up in the client: what is on its way is not written again before it is known what became of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from srm.errors import SrmError
from srm.replication.ports import StateLog

MOST_BYTES: Final = 4 << 20
"""Bytes of one partition of the map topic that may wait; more, and copying has to."""

_RECORD_BYTES: Final = 200  # what a record costs here besides its value

Records = dict[bytes, bytes | None]


class MapOutbox:
    """What is to be written to a flow's map topic."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._blocks = defaultdict[int, Records](dict)
        self._deletions = defaultdict[int, Records](dict)
        self._sent = defaultdict[int, Records](dict)
        self._bytes = defaultdict[int, int](int)

    def put(self, partition: int, key: bytes, value: bytes) -> None:
        """Have a record written; it replaces an earlier version that is not written yet."""
        self._deletions[partition].pop(key, None)
        self._bytes[partition] += len(value) + _RECORD_BYTES - self._size(partition, key)
        self._blocks[partition][key] = value

    def delete(self, partition: int, key: bytes) -> None:
        """Have a record deleted, after all that were put before are acknowledged."""
        self._deletions[partition][key] = None

    def is_full(self, partition: int) -> bool:
        """Whether so much waits that no more should be copied into this partition's maps."""
        return self._bytes[partition] > MOST_BYTES

    def write(self, log: StateLog, timeout_s: float) -> Mapping[int, SrmError | None]:
        """Write what waits, and wait for it.

        Returns:
            The partitions in which something is not acknowledged, with the reason where it is
            known: None says that it is only late.
        """
        late = self._settle(log, 0.0)
        for partition, blocks in self._blocks.items():
            if partition not in late and blocks:
                self._send(log, partition, blocks)
        late |= self._settle(log, timeout_s)
        for partition, deletions in self._deletions.items():
            if deletions and not self._blocks[partition] and partition not in late:
                self._send(log, partition, deletions)
                deletions.clear()
        return late

    def _send(self, log: StateLog, partition: int, records: Records) -> None:
        for key, value in records.items():
            log.write(self.topic, key, value, partition)
            if value is not None:
                self._sent[partition][key] = value

    def _settle(self, log: StateLog, timeout_s: float) -> dict[int, SrmError | None]:
        """Find out what became of what was sent; what failed is left to be sent again."""
        sent = {(self.topic, partition) for partition, records in self._sent.items() if records}
        if not sent:
            return {}
        settled = log.settle(sent, timeout_s)
        late: dict[int, SrmError | None] = {partition: None for _, partition in settled.pending}
        for (_, partition), error in settled.failed.items():
            late[partition] = error
            self._sent[partition].clear()
        for _, partition in sent:
            if partition not in late:
                self._acknowledge(partition)
        return late

    def _acknowledge(self, partition: int) -> None:
        sent, blocks = self._sent[partition], self._blocks[partition]
        for key, value in sent.items():
            if blocks.get(key) is value:  # otherwise a newer version waits
                self._bytes[partition] -= self._size(partition, key)
                del blocks[key]
        sent.clear()

    def _size(self, partition: int, key: bytes) -> int:
        known = self._blocks[partition].get(key)
        return 0 if known is None else len(known) + _RECORD_BYTES
