"""Single records of one partition by offset, of tables too large to read whole.

Each record is one Fetch of one byte: a broker answers with the whole batch (KIP-74). Many such
requests run at once. docs/decisions/0007-maps-are-read-by-place.md has the cost of seeking instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from srm.domain.names.topics import TopicPartition
from srm.engine.table_ports import Row
from srm.errors import SrmError, UnavailableError
from srm.kafka.admin.clients import Clients
from srm.kafka.admin.errors import of_code
from srm.kafka.admin.partition_leaders import find_leaders
from srm.kafka.admin.topics import UNKNOWN_TOPIC_CODES
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.fetch_by_name import fetch_one, fetched_of
from srm.kafka.wire.rights import on_topic
from srm.replication.batches.aborted import AbortedTransactions
from srm.replication.batches.batch import batches, verify
from srm.replication.batches.rebuild import decode
from srm.replication.ports import Leader

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
        leader = (await find_leaders(brokers, [self.place], self._error)).get(self.place)
        if leader is None:
            return
        gate = asyncio.Semaphore(_UNDER_WAY)

        async def read_group(group: Sequence[int]) -> None:
            async with gate:
                await self._read_group(brokers, leader, group)

        outcomes = await asyncio.gather(
            *[read_group(group) for group in _neighbours(left)], return_exceptions=True
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _read_group(self, brokers: Brokers, leader: Leader, group: Sequence[int]) -> None:
        """Read neighbouring places, as many at once as the answers have of them."""
        left = list(group)
        while left:
            reached = self._take(await self._fetch(brokers, leader, left), frozenset(left))
            for offset in left:
                if offset <= max(reached, left[0]):  # an answer has the record, if it exists
                    self.found.setdefault(offset, None)
            left = [offset for offset in left if offset not in self.found]

    async def _fetch(
        self, brokers: Brokers, leader: Leader, offsets: Sequence[int]
    ) -> Mapping[str, Any] | None:
        """Fetch from the first offset on, a batch at least; None where the log does not hold it."""
        max_bytes = 1 if len(offsets) == 1 else len(offsets) * _NEIGHBOUR_BYTES
        request = fetch_one(self.place, leader, offsets[0], max_bytes)
        where = self.clients.where(f"reading places of {self.place}")
        error = partial(self._error, self.place.topic)
        return fetched_of(await brokers.query(leader.node, request), where, error)

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

    def _error(self, topic: str, code: int) -> SrmError:
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
