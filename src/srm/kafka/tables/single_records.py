"""Single records at scattered offsets, of logs too large to read whole, and those a group is at.

A consumer needs hundreds of milliseconds for each seek. Here each offset is one Fetch of one byte,
which a broker answers with the whole batch at that offset (KIP-74); many run at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message

from srm.domain.names.topics import TopicPartition
from srm.domain.verification.compared_record import ComparedRecord
from srm.engine.cluster_ports import GroupKind, Place, Row
from srm.errors import UnavailableError
from srm.kafka.admin.clients import Clients, drain, open_reader
from srm.kafka.admin.offsets import TopicError, find_leaders, log_starts, topic_errors
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.errors import kafka_errors, on_group, on_topic, translate
from srm.kafka.wire.frames import FetchResponse
from srm.replication.batches.batch import AbortedTransactions, BatchHeader, batches, verify
from srm.replication.batches.records import decode
from srm.replication.codes import OFFSET_OUT_OF_RANGE
from srm.replication.ports import DecodedRecord, FetchedPartition, FetchFrom

_AT_ONCE: Final = 2000  # places that can be read within the time of one call
_FIRST_BYTES: Final = 1
_NEXT_BYTES: Final = 256 << 10
_MOST_FETCHES: Final = 64  # of one place: 16 MB of markers and aborted records
_NEIGHBOURS: Final = 16
"""Places so near to each other are read together: a block and the index record after it, say."""
_NEIGHBOUR_BYTES: Final = 64 << 10
_MOST_TOGETHER: Final = 16
_POLL_S: Final = 0.2
_SESSION_MS: Final = 6_000
"""The least that brokers take by default: a member that was killed is gone so soon."""
_NO_POSITION: Final = frozenset(
    {KafkaError._NO_OFFSET, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001 - local codes
)

_Batches = Iterable[tuple[BatchHeader, bool]]
_Fetch = Callable[[int, int], Awaitable[_Batches | None]]
"""Fetches a batch or more from an offset on, with a size in bytes, and whether readers get each.

None where the log does not hold the offset.
"""
_Read = tuple[TopicPartition, Callable[[_Fetch], Awaitable[None]]]


def first_records(
    clients: Clients, places: Collection[Place], *, committed: bool = True
) -> dict[Place, ComparedRecord | None]:
    found: dict[Place, ComparedRecord | None] = {}
    abandoned: set[Place] = set()
    out_of_range: set[Place] = set()

    async def read_place(place: Place, at: int, fetch: _Fetch) -> None:
        max_bytes = _FIRST_BYTES
        for _ in range(_MOST_FETCHES):
            fetched = await fetch(at, max_bytes)
            if fetched is None:
                out_of_range.add(place)
                return
            record, following = _first(fetched, at)
            if record is not None or following == at:
                found[place] = record
                return
            at, max_bytes = following, _NEXT_BYTES
        abandoned.add(place)

    def read(starts: Mapping[Place, int]) -> None:
        out_of_range.difference_update(starts)
        ordered = sorted(starts)
        for first in range(0, len(ordered), _AT_ONCE):
            some = ordered[first : first + _AT_ONCE]

            def rest(some: Sequence[Place] = some) -> list[_Read]:
                done = found.keys() | abandoned | out_of_range
                return [(p[0], partial(read_place, p, starts[p])) for p in some if p not in done]

            _scatter(clients, rest, committed=committed)

    read({place: place[1] for place in places if place[1] >= 0})
    if out_of_range:
        held = log_starts(clients, {partition for partition, _ in out_of_range})
        later = [place for place in out_of_range if held.get(place[0], -1) > place[1]]
        read({place: held[place[0]] for place in later})
    return found


def records_at(clients: Clients, place: TopicPartition, offsets: Collection[int]) -> dict[int, Row]:
    wanted = sorted({offset for offset in offsets if offset >= 0})
    found: dict[int, Row | None] = {}

    async def read_group(group: Sequence[int], fetch: _Fetch) -> None:
        """Read neighbouring places, as many at once as the answers have of them."""
        left = list(group)
        while left:
            size = 1 if len(left) == 1 else len(left) * _NEIGHBOUR_BYTES
            reached = _take(await fetch(left[0], size) or (), frozenset(left), found)
            for offset in left:
                if offset <= max(reached, left[0]):  # an answer has the record, if it exists
                    found.setdefault(offset, None)
            left = [offset for offset in left if offset not in found]

    def rest() -> list[_Read]:
        groups = _neighbours([offset for offset in wanted if offset not in found])
        return [(place, partial(read_group, group)) for group in groups]

    if wanted:
        _scatter(clients, rest)
    return {offset: row for offset, row in found.items() if row is not None}


def _take(fetched: _Batches, wanted: frozenset[int], found: dict[int, Row | None]) -> int:
    reached = -1
    for batch, is_data in fetched:
        reached = batch.last_offset
        here = wanted.intersection(range(batch.base_offset, reached + 1))
        if is_data and here:
            verify(batch)
            for record in decode(batch, min(here)):
                if record.offset in here and record.key is not None:
                    found[record.offset] = bytes(record.key), record.value
    return reached


def _scatter(clients: Clients, rest: Callable[[], list[_Read]], *, committed: bool = True) -> None:
    """Do the rest of the reads, some at a time; a retry does what is the rest then."""
    error = topic_errors(clients, "reading")

    async def request(brokers: Brokers) -> None:
        reads, gate = rest(), asyncio.Semaphore(32)
        leaders = await find_leaders(brokers, {partition for partition, _ in reads}, error)

        async def fetch(partition: TopicPartition, at: int, max_bytes: int) -> _Batches | None:
            leader = leaders[partition]
            wanted = FetchFrom(
                leader.topic_id, partition.partition, at, max_bytes, leader_epoch=leader.epoch
            )
            response = await brokers.fetch(leader.node, wanted, read_committed=committed)
            found = fetched_of(response, partition, error)
            return None if found is None else _batches(found)

        async def read(place: TopicPartition, once: Callable[[_Fetch], Awaitable[None]]) -> None:
            async with gate:
                await once(partial(fetch, place))

        outcomes = await asyncio.gather(
            *(read(*each) for each in reads if each[0] in leaders), return_exceptions=True
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    topics = sorted({partition.topic for partition, _ in rest()})
    if topics:
        needs = on_topic("Read", *topics)
        clients.request("reading single records", request, needs, client="consumer")


def fetched_of(
    response: FetchResponse, partition: TopicPartition, error: TopicError
) -> FetchedPartition | None:
    """Return what was fetched of a partition, None where its log does not hold the offset."""
    if response.error:
        raise error(partition.topic, response.error)
    if not response.fetched.partitions:
        raise UnavailableError(f"reading {partition}: held up by a quota of the broker; retry")
    [found] = response.fetched.partitions
    if found.error == OFFSET_OUT_OF_RANGE:
        return None
    if found.error:
        raise error(partition.topic, found.error)
    return found


def _batches(fetched: FetchedPartition) -> _Batches:
    """Yield batches, each with whether readers get its records."""
    aborted = AbortedTransactions(fetched.aborted)
    for batch in batches(fetched.records):
        yield batch, not (aborted.drops(batch) or batch.is_control)


def _first(fetched: _Batches, at: int) -> tuple[ComparedRecord | None, int]:
    """Return the first record from ``at`` on or None, and the next offset (``at``: end)."""
    following = at
    for batch, is_data in fetched:
        following = max(following, batch.last_offset + 1)
        if is_data and batch.last_offset >= at:
            verify(batch)
            if records := decode(batch, at):
                return _record(records[0], stamped=batch.has_log_append_time), at
    return None, following


def _record(one: DecodedRecord, *, stamped: bool) -> ComparedRecord:
    key, value = (None if part is None else bytes(part) for part in (one.key, one.value))
    headers = tuple((name, None if v is None else bytes(v)) for name, v in one.headers)
    return ComparedRecord(one.offset, key, value, headers, one.timestamp, stamped)


def _neighbours(offsets: Sequence[int]) -> Iterator[list[int]]:
    group: list[int] = []
    for offset in offsets:
        if group and (offset - group[-1] > _NEIGHBOURS or len(group) == _MOST_TOGETHER):
            yield group
            group = []
        group.append(offset)
    if group:
        yield group


def read_first(
    clients: Clients,
    group: str,
    partitions: Collection[TopicPartition],
    limit_s: float,
    kind: GroupKind = "classic",
) -> dict[TopicPartition, ComparedRecord | None]:
    wanted = set(partitions)
    if not wanted:
        return {}
    deadline = time.monotonic() + limit_s
    where = clients.label(f"reading as a member of group {group!r}")
    topics = sorted({partition.topic for partition in wanted})
    needs = {**on_group("Read", group), **on_topic("Read", *topics)}
    found: dict[TopicPartition, ComparedRecord | None] = {}
    without = set[TopicPartition]()

    def take(message: Message) -> None:
        error = message.error()
        place = TopicPartition(message.topic() or "", max(0, message.partition() or 0))
        if error is None or error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - public constant
            if place in wanted:
                found.setdefault(place, record_of(message) if error is None else None)
        elif error.code() in _NO_POSITION:
            without.add(place)
        elif not (failure := translate(error, where)).retriable:
            raise failure

    with kafka_errors(where, needs):
        own: dict[str, str | int] = {"group.protocol": "consumer"}
        if kind != "consumer":  # of which the brokers set the times
            own = {
                "group.protocol": "classic",
                "session.timeout.ms": _SESSION_MS,
                "heartbeat.interval.ms": _SESSION_MS // 3,
            }
        settings = {
            **own,
            "group.id": group,
            # A partition without an offset is said to have none, not read from somewhere.
            "auto.offset.reset": "error",
            "queued.max.messages.kbytes": 4096,
            "fetch.message.max.bytes": 64 << 10,
        }
        with closing(open_reader(clients.props.consumer, settings)) as consumer:
            consumer.subscribe(topics)
            while time.monotonic() < deadline and wanted - found.keys() - without:
                for message in drain(consumer, _POLL_S):
                    take(message)
    return found


def record_of(message: Message) -> ComparedRecord:
    kind, at_ms = message.timestamp()
    headers = tuple((name, value) for name, value in message.headers() or ())
    stamped = kind == TIMESTAMP_LOG_APPEND_TIME
    return ComparedRecord(message.offset(), message.key(), message.value(), headers, at_ms, stamped)
