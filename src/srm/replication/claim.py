"""Claims: at any time at most one slot can write to a target partition.

Each target partition has one transactional id. Taking it over raises the producer epoch, and an
aborted empty transaction puts a marker with that epoch into the partition's log: from then on the
broker refuses batches of every older epoch. After that plain idempotent batches are enough.

The first claim on an empty log has no older epoch to fence. Its first batch takes the place of the
marker, which brokers would stamp with their own time: look-ups by time would find it before a
backlog. The claim is reported before that batch, and nothing follows before it can be read back.

Brokers forget idle producers (``producer.id.expiration.ms``) and transactional ids
(``transactional.id.expiration.ms``). An owner that was suspended for longer could write again. So a
claim is used for a quarter of the shorter time only, then renewed.

A producer id has 32 767 epochs. The claim after the last one gets another id, whose marker does not
fence holders of the old one. Its owner waits until the last claim under the old id has lapsed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from srm.clock import now_s
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.runs import UNKNOWN_LINEAGE, Lineage
from srm.errors import FencedError, SrmError, UnavailableError
from srm.replication.batches.batch import BatchHeader, batches, next_sequence
from srm.replication.log_reader import (
    ONE_BATCH,
    LogReader,
    LongWalkError,
    Meter,
    OutOfRangeError,
    fetches,
)
from srm.replication.mapping.starts import Start
from srm.replication.ports import ProducerId, Wire

_DAY_MS: Final = 86_400_000
_EXPIRATIONS: Final = {
    "producer.id.expiration.ms": _DAY_MS,
    "transactional.id.expiration.ms": 7 * _DAY_MS,
}

LAST_EPOCH: Final = 32_766
"""The coordinator gives a new producer id instead of the highest short, which is its own."""
_QUERY_EVERY_S: Final = 60.0
_MARKER_S: Final = 30.0
_FIRST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 0.5

ReadConfigs = Callable[[], Awaitable[Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write to one target partition until ``expires`` (monotonic seconds).

    ``leader_epoch``: that of its first batch in the target's log, -1 before it is in force. That
    batch is a marker, or begins the log: ``begins`` until it can be read back.
    """

    producer: ProducerId
    expires: float
    leader_epoch: int = -1
    begins: bool = False

    def holds(self) -> bool:
        return now_s() < self.expires

    def claims_since(self, last: ProducerId | None) -> int:
        """Count the claims between one before and this one; 0 if that is unknown."""
        if last is None or last.id != self.producer.id:
            return 0
        return max(0, self.producer.epoch - last.epoch - 1)


def transactional_id(flow: Flow, target: TopicPartition) -> str:
    """Name of the claim on one target partition, the same for every slot and application."""
    return f"srm-{flow}-{target}"


def claim_lifetime_s(broker_configs: Mapping[str, str]) -> float:
    shortest = min(int(broker_configs.get(key, default)) for key, default in _EXPIRATIONS.items())
    return shortest / 4000


async def take(
    wire: Wire, flow: Flow, target: TopicPartition, lifetime_s: float, *, may_begin: bool = False
) -> Claim:
    """Fence every older owner of the partition; in force only after :func:`until_in_force`.

    ``may_begin``: the log is empty and no earlier claim is known, so the first epoch fences none.
    """
    name = transactional_id(flow, target)
    expires = now_s() + lifetime_s
    producer = await wire.init_producer_id(name)
    if may_begin and not producer.epoch:
        return Claim(producer, expires, begins=True)
    await wire.abort_empty_transaction(name, producer, target)
    return Claim(producer, expires)


class ClaimLifetime:
    """Maximum use of a claim, from the target's configs, queried at most once a minute."""

    def __init__(self, read: ReadConfigs) -> None:
        self._read = read
        self._known_s: float | None = None
        self._queried_at = float("-inf")
        self._running: asyncio.Task[None] | None = None

    async def seconds(self) -> float:
        """Return the lifetime of a claim that is taken now; SrmError if brokers never answered."""
        if self._running is None and now_s() - self._queried_at >= _QUERY_EVERY_S:
            self._running = asyncio.get_running_loop().create_task(self._query())
        if self._running is not None:
            query = asyncio.shield(self._running)
            if self._known_s is None:
                await query
            else:
                with suppress(SrmError, TimeoutError):
                    async with asyncio.timeout(2.0):
                        await query
        if self._known_s is None:
            raise UnavailableError("producer.id.expiration.ms of the brokers is not known yet")
        return self._known_s

    async def _query(self) -> None:
        try:
            configs = await self._read()
            if configs or self._known_s is None:
                self._known_s = claim_lifetime_s(configs)
        finally:
            self._running = None
            if self._known_s is not None:
                self._queried_at = now_s()


def _claim_of(batch: BatchHeader) -> ProducerId:
    return ProducerId(batch.producer_id, batch.producer_epoch)


def is_marker(batch: BatchHeader, claim: Claim) -> bool:
    return batch.is_control and _claim_of(batch) == claim.producer


async def until_in_force(target: LogReader, end: int, claim: Claim) -> Claim:
    """Wait until the first batch of a claim is in the target's log: from then on it is in force.

    A marker comes late where the partition lacks in-sync followers. The wait holds no lock and uses
    no long poll, which would delay later requests. ``end``: where the log ended before the claim.
    """
    deadline, pause_s, is_gone = now_s() + _MARKER_S, _FIRST_PAUSE_S, False
    while now_s() < deadline:
        _, log_end = await target.wire.log_range(target.partition)
        if log_end <= end and not is_gone:
            await asyncio.sleep(pause_s)  # between two looks, longer and longer
            pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)
            continue
        try:
            fetched = await target.fetch(end)
        except OutOfRangeError as error:
            end = max(end, error.log_start)
            is_gone = claim.begins  # retention has deleted what began the log
            continue
        for batch in batches(fetched.records):
            if _claim_of(batch) == claim.producer:
                return replace(claim, leader_epoch=batch.leader_epoch, begins=False)
            end = max(end, batch.last_offset + 1)
        if is_gone:
            return replace(claim, begins=False)
    raise UnavailableError(
        f"{target.partition}: the {'first batch' if claim.begins else 'marker'} of our claim did "
        f"not reach the log in {_MARKER_S:.0f} s"
    )


T = TypeVar("T")

_CLAIM_S: Final = 0.1
"""A claim takes about 10 ms. What takes longer waits for a broker, and needs no permit for that."""
_SHORT_WALK_BYTES: Final = 16 << 20
"""A crash leaves at most one second of copying to be walked."""


class ClaimPermits:
    """Concurrent claims for each target broker, not counting those that take too long."""

    def __init__(self) -> None:
        self._free: defaultdict[int, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(16))

    @asynccontextmanager
    async def hold(self, node: int) -> AsyncIterator[None]:
        """Hold a permit for a node, until the end or until it has taken too long."""
        free = self._free[node]
        await free.acquire()
        with ExitStack() as permit:
            permit.callback(free.release)
            overdue = asyncio.get_running_loop().call_later(_CLAIM_S, permit.close)
            permit.callback(overdue.cancel)
            yield


class WalkPermits:
    """Concurrent walks, bounded by memory: short ones per pair of brokers, and long ones."""

    def __init__(self) -> None:
        self._short: defaultdict[tuple[int, int], asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(16)
        )
        self._long = asyncio.Semaphore(4)

    async def walk(self, pair: tuple[int, int], walk: Callable[[Meter], Awaitable[T]]) -> T:
        """Walk, if need be twice, through readers with this meter."""
        try:
            async with self._short[pair]:
                return await walk(Meter(_SHORT_WALK_BYTES))
        except LongWalkError:
            pass
        async with self._long:
            return await walk(Meter(float("inf")))


_STEPS_BACK: Final = 1000
"""Batches of others that are passed one by one; below them nothing of the map is trusted."""
_FIRST_REACH: Final = 100
"""Offsets that a search back for a batch of ours covers first; each further one is longer."""
_FURTHER: Final = 8


@dataclass(frozen=True, slots=True)
class HeldLog:
    """The part of the copy in the target's log, which has offsets ``log_start`` to ``log_end``.

    ``end``: the known position, or the lower offset up to which the log is as expected.
    ``lineage``: that of the copy, with epochs that began between its batches.
    """

    end: int
    log_start: int
    log_end: int
    lineage: Lineage = UNKNOWN_LINEAGE

    @property
    def is_exact(self) -> bool:
        """False if the copy may end before ``end``, where retention has deleted the log."""
        return self.end > self.log_start or not self.log_start

    def end_without(self, markers: int) -> int:
        """Return the lowest offset where the copy can end, if at most ``markers`` followed it."""
        return self.end if self.is_exact else max(0, self.end - markers)


@dataclass(frozen=True, slots=True)
class _OurSide:
    """The batches of the log that count: all, or those under our ids where others write, too."""

    target: LogReader
    log_start: int
    ids: frozenset[int] | None

    async def last_before(self, end: int) -> BatchHeader | None:
        found = await self.target.batch_at(end - 1) if end > self.log_start else None
        if self.ids is None or (found is not None and found.producer_id in self.ids):
            return found
        found, first, reach = None, end, _FIRST_REACH
        while found is None and first > self.log_start:
            first, until = max(self.log_start, end - reach), first
            async for batch in self._ours(first, until):
                found = batch
            reach *= _FURTHER
        return found

    async def first_from(self, at: int, end: int) -> BatchHeader | None:
        if self.ids is None:
            return await self.target.batch_at(at)
        async for batch in self._ours(at, end):
            return batch
        return None

    async def has_claim(self, claim: ProducerId, at: int) -> bool:
        """Return whether a claim has a batch from an offset on; True if compaction may hide it."""
        async for _, fetched in fetches(self.target, at):
            for batch in batches(fetched.records):
                if batch.base_offset > at:
                    return True
                if batch.producer_id == claim.id and batch.producer_epoch >= claim.epoch:
                    return batch.producer_epoch == claim.epoch
                at = max(at, batch.last_offset + 1)
        return False

    async def _ours(self, first: int, end: int) -> AsyncIterator[BatchHeader]:
        async for wanted, fetched in fetches(self.target, first):
            for batch in batches(fetched.records):
                if batch.base_offset >= end:
                    return
                if self.ids and batch.producer_id in self.ids and batch.last_offset >= wanted:
                    yield batch


async def held_log(target: LogReader, start: Start, *, is_shared: bool = False) -> HeldLog:
    """Compare the target's log with the known position; ``is_shared``: others write to it, too.

    A log that lost its end grows again by each marker of a claim, so its length proves nothing::

        what we know        ... |901..950|951..1000|            position 1001, written in epoch 4
        the target          ... |901..950| M | M |              ends, or has epoch 5, at 951
                                         ^ held: the map is cut here, what follows is copied again

    - The log ends early, or its lineage diverges from the one that was read: a log that was cut off
      continues under a later epoch. Of a log without any of these epochs nothing is trusted, nor
      of one that is too short if no epoch is known: without the markers of later claims at its end.
    - Where the log begins at the cut, retention may have deleted the markers of claims before it.
    - A later epoch alone proves nothing: the same leader may have been elected again between two of
      our batches. Then the batch after the boundary has the next sequence number of the same claim.
      Where retention has deleted the boundary, all that is left is of the claim of the position.
    - Where others write between our batches, only those under our producer ids count.
    - The batch before the position is of a claim of ours, not of a later one, and no marker where
      the map ends with a record. Where it is gone the epochs and the end decide alone.
    - Without epochs, as after a loss of all reports, the log of a former replica can be as long. So
      the claim that wrote the map's end has that batch, or another one from the position on.

    An undecidable case counts as a loss: that costs a walk, and nothing is copied twice.
    """
    log_start, log_end = await target.wire.log_range(target.partition)
    if not start.has_position or start.target_next <= log_start:
        return HeldLog(start.target_next, log_start, log_end, start.target_lineage)
    try:
        written_by = frozenset({start.written_by.id} if start.written_by else ())
        ids = start.producer_ids | written_by if is_shared else None
        ours = _OurSide(target, log_start, ids)
        held, lineage = await _held_by_epochs(ours, start, log_end)
        end = min(start.target_next, log_end, held)
        end = await _held_by_producers(ours, start, end)
        if end < start.target_next:
            # Other requests use the name; this one uses the id and fails for a re-created topic.
            await target.fetch(end, max_bytes=ONE_BATCH)
    except OutOfRangeError as error:
        raise UnavailableError(f"{error}: the log changes at the moment") from error
    return HeldLog(end, log_start, log_end, lineage)


async def _held_by_epochs(ours: _OurSide, start: Start, log_end: int) -> tuple[int, Lineage]:
    """Return the first offset of something else than our copy, and the lineage up to there."""
    target, log_start = ours.target, ours.log_start
    lineage, at, passed = start.target_lineage, start.target_next, -1
    while True:
        end, is_exact = await target.shared_end(lineage, at)
        if end >= at:
            return at, lineage
        if not (lineage and is_exact):
            return log_start, lineage
        end = max(log_start, end)
        # A leader may not know an epoch of its own log, and repeat its answer.
        if not passed < end < log_end:
            return end, lineage
        passed = end
        is_gone = end == log_start > lineage.begin  # retention has passed the start of an epoch
        before = await ours.last_before(min(at, log_end) if is_gone else end)
        after = await ours.first_from(end, at)
        if before is None or after is None or after.is_control:
            return end, lineage
        if not (_spans(start, after, before) if is_gone else _continues(before, after)):
            return end, lineage
        first = await target.batch_from(end) or after  # of whoever wrote it
        longer = lineage.with_unread(first.leader_epoch, end)
        if longer is None:
            return end, lineage
        lineage = longer


async def _held_by_producers(ours: _OurSide, start: Start, end: int) -> int:
    """Return the offset after the last batch that can precede the position, at most ``end``."""
    for _ in range(_STEPS_BACK):
        if end <= ours.log_start:
            return end
        batch = await ours.last_before(end)
        if ours.ids is not None and not start.target_lineage:
            # Without epochs, a lost end that others filled again looks like what they wrote before.
            end = min(end, batch.last_offset + 1 if batch else ours.log_start)
        is_record = start.ends_with_record and end == start.target_next
        if batch is None:
            return end
        if _can_precede(batch, start) and not (is_record and batch.is_control):
            claim = None if start.target_lineage else start.written_by
            if claim is None or await ours.has_claim(claim, batch.base_offset):
                return end
        if not start.target_lineage:
            return ours.log_start  # the batch before may have gone astray into a log that was cut
        end = batch.base_offset
    return ours.log_start


def _continues(before: BatchHeader, after: BatchHeader) -> bool:
    """Return whether records are the next of the same claim; the marker precedes the first."""
    wanted = 0
    if not before.is_control:
        wanted = next_sequence(before.base_sequence, before.last_offset_delta + 1)
    return _claim_of(before) == _claim_of(after) and after.base_sequence == wanted


def _spans(start: Start, first: BatchHeader, last: BatchHeader) -> bool:
    """Return whether the claim of a position wrote all of a log from a batch to that position."""
    is_last = last.last_offset + 1 == start.target_next
    return is_last and _claim_of(first) == _claim_of(last) == start.written_by


def _can_precede(batch: BatchHeader, start: Start) -> bool:
    """Return whether a batch can precede the position: of no later claim, and not foreign."""
    known = start.written_by
    if known is not None and batch.producer_id == known.id:
        return batch.producer_epoch <= known.epoch
    return batch.is_control or not start.producer_ids or batch.producer_id in start.producer_ids


_NOT_USED_S: Final = 0.0


@dataclass(frozen=True, slots=True)
class Sealed:
    """A claim in force and the offset of its marker, which is the last in the log."""

    claim: Claim
    marker: int


async def outbid(target: LogReader, flow: Flow) -> Claim:
    """Raise the epoch of a copy's claim as its next owner would, and see it in the log."""
    _, end = await target.wire.log_range(target.partition)
    claim = await take(target.wire, flow, target.partition, _NOT_USED_S)
    return await until_in_force(target, end, claim)


async def seal(target: LogReader, flow: Flow) -> Sealed:
    """Fence every process that still writes to a copy; while its flow is paused, none claims it.

    FencedError: another process claims it, or writes to it, at this moment.
    """
    claim = await outbid(target, flow)
    _, log_end = await target.wire.log_range(target.partition)
    last = await target.batch_from(log_end - 1)
    if last is None or not is_marker(last, claim):
        raise FencedError(
            f"{target.partition} on {target.wire.alias}: another process writes to it at this "
            "moment, perhaps another restore; run this again when it has ended"
        )
    return Sealed(claim, last.base_offset)


async def begins_with_records(log: LogReader) -> bool:
    """Return whether a log begins with records, and not with the marker of a claim."""
    start, end = await log.wire.log_range(log.partition)
    if start == end:
        return False
    first = await log.batch_from(start)
    return first is not None and not first.is_control and first.record_count > 0


async def first_record_in(log: LogReader, ranges: Iterable[tuple[int, int]]) -> int | None:
    """Return the first offset in ordered ranges whose batch has records, if any."""
    start, end = await log.wire.log_range(log.partition)
    for first, last in ranges:
        at, stop = max(first, start), min(last, end)
        while at < stop:
            batch = await log.batch_from(at)
            if batch is None or batch.base_offset >= stop:
                break
            if not batch.is_control and batch.record_count > 0:
                return max(at, batch.base_offset)
            at = batch.last_offset + 1
    return None
