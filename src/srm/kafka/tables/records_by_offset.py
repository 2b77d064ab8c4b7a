"""Single records of one partition by offset, of tables too large to read whole.

Each record is one Fetch of one byte: a broker answers with the whole batch (KIP-74). Many such
requests run at once. docs/decisions/0007-maps-are-read-by-place.md has the cost of seeking instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from srm.domain.names.topics import TopicPartition
from srm.engine.table_ports import Row
from srm.errors import SrmError, UnavailableError
from srm.kafka.admin.clients import Clients
from srm.kafka.admin.errors import of_code
from srm.kafka.admin.topics import UNKNOWN_TOPIC_CODES
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.fetch_by_name import fetch_one, fetched_of
from srm.kafka.wire.rights import on_topic
from srm.replication.batches.aborted import AbortedTransactions
from srm.replication.batches.batch import batches, verify
from srm.replication.batches.rebuild import decode

_NEIGHBOURS: Final = 16
"""Places so near to each other are read together: a block and the index record after it, say."""
_NEIGHBOUR_BYTES: Final = 64 << 10
_MOST_TOGETHER: Final = 16
_UNDER_WAY: Final = 32


def records_at(clients: Clients, place: TopicPartition, offsets: Collection[int]) -> dict[int, Row]:
    """Return the records at offsets of a partition; see the engine's port."""
    wanted = sorted({offset for offset in offsets if offset >= 0})
    if not wanted:
        return {}
    reading = _Reading(clients, place)

    async def request(brokers: Brokers) -> None:
        await reading.read(brokers, wanted)

    clients.read_brokers(f"reading places of {place}", request, on_topic("Read", place.topic))
    return {offset: row for offset, row in reading.found.items() if row is not None}


@dataclass
class _Reading:
    """Records read so far, None where none exists; a retry reads only the missing ones."""

    clients: Clients
    place: TopicPartition
    found: dict[int, Row | None] = field(default_factory=dict)

    async def read(self, brokers: Brokers, wanted: Sequence[int]) -> None:
        left = [offset for offset in wanted if offset not in self.found]
        node = await self._leader(brokers)
        if node is None:
            return
        gate = asyncio.Semaphore(_UNDER_WAY)

        async def read_group(group: Sequence[int]) -> None:
            async with gate:
                await self._read_group(brokers, node, group)

        outcomes = await asyncio.gather(
            *[read_group(group) for group in _neighbours(left)], return_exceptions=True
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _leader(self, brokers: Brokers) -> int | None:
        """Return the node to ask, None where the partition does not exist."""
        metadata = await brokers.look([self.place.topic])
        for topic in metadata["topics"]:
            if topic["error_code"] and topic["error_code"] not in UNKNOWN_TOPIC_CODES:
                raise self._error(topic["error_code"])
            for found in topic["partitions"]:
                if found["partition"] == self.place.partition:
                    if found["leader"] < 0:
                        raise self._error(found["error_code"])
                    return int(found["leader"])
        return None

    async def _read_group(self, brokers: Brokers, node: int, group: Sequence[int]) -> None:
        """Read neighbouring places, as many at once as the answers have of them."""
        left = list(group)
        while left:
            reached = self._take(await self._fetch(brokers, node, left), frozenset(left))
            for offset in left:
                if offset <= max(reached, left[0]):  # an answer has the record, if it exists
                    self.found.setdefault(offset, None)
            left = [offset for offset in left if offset not in self.found]

    async def _fetch(
        self, brokers: Brokers, node: int, offsets: Sequence[int]
    ) -> Mapping[str, Any] | None:
        """Fetch from the first offset on, a batch at least; None where the log does not hold it."""
        max_bytes = 1 if len(offsets) == 1 else len(offsets) * _NEIGHBOUR_BYTES
        place = self.place
        request = fetch_one(place.topic, place.partition, offsets[0], max_bytes)
        where = self.clients.where(f"reading places of {place}")
        return fetched_of(await brokers.ask(node, request), where, self._error)

    def _take(self, fetched: Mapping[str, Any] | None, wanted: frozenset[int]) -> int:
        """Keep the wanted records of an answer; return the last offset that it speaks of."""
        reached = -1
        if fetched is None:
            return reached
        ended = fetched["aborted_transactions"] or ()
        aborted = AbortedTransactions(
            tuple((each["producer_id"], each["first_offset"]) for each in ended)
        )
        for batch in batches(memoryview(fetched["records"] or b"")):
            reached = batch.last_offset
            here = wanted.intersection(range(batch.base_offset, reached + 1))
            if aborted.drops(batch) or batch.is_control or not here:
                continue
            verify(batch)
            for record in decode(batch, min(here)):
                if record.offset in here and record.key is not None:
                    self.found[record.offset] = bytes(record.key), record.value
        return reached

    def _error(self, code: int) -> SrmError:
        topic = self.place.topic
        where = self.clients.where(f"reading places of {self.place}")
        if code in UNKNOWN_TOPIC_CODES:  # just deleted, or not yet known to its leader
            return UnavailableError(f"{where}: not known; retry")
        return of_code(code, where, on_topic("Read", topic))


def _neighbours(offsets: Sequence[int]) -> Iterator[list[int]]:
    """Group offsets in order by nearness."""
    group: list[int] = []
    for offset in offsets:
        if group and (offset - group[-1] > _NEIGHBOURS or len(group) == _MOST_TOGETHER):
            yield group
            group = []
        group.append(offset)
    if group:
        yield group
