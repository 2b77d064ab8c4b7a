"""First record at or after an offset, for many scattered offsets and partitions.

A consumer needs hundreds of milliseconds for each seek. Here each offset is one Fetch of one byte,
which a broker answers with the whole batch at that offset (KIP-74); many run at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from srm.domain.verification.compared_record import ComparedRecord
from srm.engine.cluster_ports import Place
from srm.errors import SrmError, UnavailableError
from srm.kafka.admin.clients import Clients
from srm.kafka.admin.errors import of_code
from srm.kafka.admin.offsets import log_starts
from srm.kafka.admin.partition_leaders import find_leaders
from srm.kafka.admin.topics import UNKNOWN_TOPIC_CODES
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.fetch_by_name import fetch_one, fetched_of
from srm.kafka.wire.rights import on_topic
from srm.replication.batches.aborted import AbortedTransactions
from srm.replication.batches.batch import batches, verify
from srm.replication.batches.legacy import convert
from srm.replication.batches.rebuild import decode
from srm.replication.ports import DecodedRecord as Decoded
from srm.replication.ports import Leader

_AT_ONCE: Final = 2000  # places that can be read within the time of one call
_UNDER_WAY: Final = 32
_FIRST_BYTES: Final = 1
_NEXT_BYTES: Final = 256 << 10
_MOST_FETCHES: Final = 64  # of one place: 16 MB of markers and aborted records


def first_records(
    clients: Clients, places: Collection[Place], *, committed: bool
) -> dict[Place, ComparedRecord | None]:
    """Return the first record at or after each place; see the engine's port."""
    reading = _Reading(clients, committed)
    for some in _parts(sorted(set(places))):
        reading.read({place: place[1] for place in some if place[1] >= 0})
    if reading.out_of_range:
        beyond = sorted(reading.out_of_range)
        starts = log_starts(clients, {partition for partition, _ in beyond})
        for some in _parts([place for place in beyond if starts.get(place[0], -1) > place[1]]):
            reading.read({place: starts[place[0]] for place in some})
    return reading.found


def _parts(places: Sequence[Place]) -> Iterator[Sequence[Place]]:
    return (places[at : at + _AT_ONCE] for at in range(0, len(places), _AT_ONCE))


@dataclass
class _Reading:
    """Records read so far; a retry reads only the missing ones."""

    clients: Clients
    committed: bool
    found: dict[Place, ComparedRecord | None] = field(default_factory=dict)
    given_up: set[Place] = field(default_factory=set)
    out_of_range: set[Place] = field(default_factory=set)

    def read(self, starts: Mapping[Place, int]) -> None:
        """Read from an offset on for each place."""
        topics = sorted({partition.topic for partition, _ in starts})
        self.out_of_range -= starts.keys()

        async def request(brokers: Brokers) -> None:
            done = self.found.keys() | self.given_up | self.out_of_range
            await self._read(brokers, {p: at for p, at in starts.items() if p not in done})

        if starts:
            self.clients.read_brokers("reading single records", request, on_topic("Read", *topics))

    async def _read(self, brokers: Brokers, starts: Mapping[Place, int]) -> None:
        partitions = {partition for partition, _ in starts}
        leaders = await find_leaders(brokers, partitions, self._error)
        gate = asyncio.Semaphore(_UNDER_WAY)

        async def read_one(place: Place, at: int, leader: Leader) -> None:
            async with gate:
                await self._read_place(brokers, leader, place, at)

        outcomes = await asyncio.gather(
            *[
                read_one(place, at, leaders[place[0]])
                for place, at in starts.items()
                if place[0] in leaders
            ],
            return_exceptions=True,
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _read_place(self, brokers: Brokers, leader: Leader, place: Place, at: int) -> None:
        partition = place[0]
        max_bytes = _FIRST_BYTES
        for _ in range(_MOST_FETCHES):
            request = fetch_one(partition, leader, at, max_bytes, committed=self.committed)
            where = self.clients.where(f"reading {partition.topic}")
            answer = await brokers.query(leader.node, request)
            fetched = fetched_of(answer, where, partial(self._error, partition.topic))
            if fetched is None:
                self.out_of_range.add(place)
                return
            record, following = self._first(fetched, at)
            if record is not None or following == at:
                self.found[place] = record
                return
            at, max_bytes = following, _NEXT_BYTES
        self.given_up.add(place)

    def _first(self, fetched: Mapping[str, Any], at: int) -> tuple[ComparedRecord | None, int]:
        """Return the first record from ``at`` on or None, and the next offset (``at``: end)."""
        ended = fetched["aborted_transactions"] or ()
        aborted = AbortedTransactions(
            tuple((each["producer_id"], each["first_offset"]) for each in ended)
        )
        following = at
        for batch in batches(memoryview(fetched["records"] or b""), convert):
            following = max(following, batch.last_offset + 1)
            if aborted.drops(batch) or batch.is_control or batch.last_offset < at:
                continue
            verify(batch)
            records = decode(batch, at)
            if records:
                return _record(records[0], stamped=batch.has_log_append_time), at
        return None, following

    def _error(self, topic: str, code: int) -> SrmError:
        where = self.clients.where(f"reading {topic}")
        if code in UNKNOWN_TOPIC_CODES:  # just deleted, or not yet known to its leader
            return UnavailableError(f"{where}: not known; retry")
        return of_code(code, where, on_topic("Read", topic))


def _record(one: Decoded, *, stamped: bool) -> ComparedRecord:
    key, value = (None if part is None else bytes(part) for part in (one.key, one.value))
    headers = tuple((name, None if v is None else bytes(v)) for name, v in one.headers)
    return ComparedRecord(one.offset, key, value, headers, one.timestamp, stamped)
