"""What the last batches of partitions look like, by their headers alone: two fetches for each.

The first brings the batch before the end, which says about how many bytes a record takes; the
second goes back as many records as make up the sample. A broker begins with the batch that holds
the offset (KIP-74), so what arrives is whole batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from srm.domain.capacity import CODECS
from srm.domain.topic_traffic import BatchSample
from srm.domain.topics import TopicPartition
from srm.errors import SrmError, UnavailableError
from srm.kafka.clients import Clients
from srm.kafka.errors import of_code
from srm.kafka.offsets import log_ends, log_starts
from srm.kafka.rights import on_topic
from srm.kafka.topics import UNKNOWN_TOPIC_CODES
from srm.kafka.wire.brokers import Brokers
from srm.kafka.wire.fetch_by_name import fetch_one, fetched_of
from srm.replication.batches.batch import BatchHeader, batches
from srm.replication.batches.legacy import convert

_SAMPLE_BYTES: Final = 256 << 10
_AT_ONCE: Final = 40  # partitions: 10 MB are read within the time of one call
_UNDER_WAY: Final = 16
_Fetch = Callable[[int, int], Awaitable[list[BatchHeader]]]
"""Takes an offset, and how many bytes."""


def recent_batches(
    clients: Clients, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, BatchSample]:
    """Return what the last batches of each partition look like; see the engine's port."""
    found: dict[TopicPartition, BatchSample] = {}
    wanted = sorted(set(partitions))
    for at in range(0, len(wanted), _AT_ONCE):
        some = wanted[at : at + _AT_ONCE]
        starts, ends = log_starts(clients, some), log_ends(clients, some)
        logs = {p: (starts[p], ends[p]) for p in some if starts.get(p, 0) < ends.get(p, 0)}
        found.update(_sampled(clients, logs))
    return found


def _sampled(
    clients: Clients, logs: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, BatchSample]:
    topics = sorted({partition.topic for partition in logs})

    async def request(brokers: Brokers) -> dict[TopicPartition, BatchSample]:
        leaders = await _leaders(brokers, topics)
        gate = asyncio.Semaphore(_UNDER_WAY)

        async def sample(partition: TopicPartition, start: int, end: int) -> BatchSample:
            async with gate:
                fetch = partial(_fetch, clients, brokers, leaders[partition], partition)
                return await _sample(fetch, start, end)

        # One that has no leader at the moment is not worth waiting for: others tell as much.
        led = {p: log for p, log in logs.items() if leaders.get(p, -1) >= 0}
        samples = await asyncio.gather(*(sample(p, *log) for p, log in led.items()))
        return {p: one for p, one in zip(led, samples, strict=True) if one.batches}

    if not logs:
        return {}
    return clients.read_brokers("reading batches", request, on_topic("Read", *topics))


async def _leaders(brokers: Brokers, topics: Sequence[str]) -> dict[TopicPartition, int]:
    metadata = await brokers.look(topics)
    return {
        TopicPartition(topic["topic"], found["partition"]): found["leader"]
        for topic in metadata["topics"]
        for found in topic["partitions"]
    }


async def _sample(fetch: _Fetch, start: int, end: int) -> BatchSample:
    last = await fetch(end - 1, 1)
    size, offsets = sum(len(b.view) for b in last), sum(b.last_offset_delta + 1 for b in last)
    if not offsets:
        return BatchSample()
    back = max(1, _SAMPLE_BYTES * offsets // max(1, size))
    return _look_at(await fetch(max(start, end - back), _SAMPLE_BYTES))


def _look_at(found: Iterable[BatchHeader]) -> BatchSample:
    records = size = count = 0
    codecs: dict[str, int] = {}
    for batch in found:
        if batch.is_control or not batch.record_count:
            continue
        count += 1
        records += batch.record_count
        size += len(batch.view)
        name = CODECS[batch.codec]
        codecs[name] = codecs.get(name, 0) + len(batch.view)
    return BatchSample(count, size, records, codecs)


async def _fetch(
    clients: Clients,
    brokers: Brokers,
    node: int,
    partition: TopicPartition,
    offset: int,
    max_bytes: int,
) -> list[BatchHeader]:
    """Return the batches from an offset on; none where retention was quicker."""
    where = clients.where(f"reading {partition.topic}")

    def error(code: int) -> SrmError:
        if code in UNKNOWN_TOPIC_CODES:  # deleted meanwhile, or not yet known to its leader
            return UnavailableError(f"{where}: not known; retry")
        return of_code(code, where, on_topic("Read", partition.topic))

    request = fetch_one(partition.topic, partition.partition, offset, max_bytes)
    fetched = fetched_of(await brokers.ask(node, request), where, error)
    if fetched is None:
        return []
    return list(batches(memoryview(fetched["records"] or b""), convert))
