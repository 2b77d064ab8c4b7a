"""Long polls of the source, one per broker: each looks only at partitions that have changed."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from srm.clock import now_s
from srm.errors import IntegrityError, SrmError
from srm.logs import Troubles
from srm.replication import codes
from srm.replication.partition import PartitionCopy
from srm.replication.ports import Fetched, FetchedPartition, FetchFrom, FetchSession

logger = logging.getLogger(__name__)

_BURST_S: Final = 0.1
_LEAST_FETCH: Final = 1 << 16


class Quota:
    """Spreads a byte rate over time by a wait before the next fetch; no limit: no wait."""

    def __init__(self, bytes_per_second: float | None, clock: Callable[[], float] = now_s) -> None:
        """Begin with the whole limit, ``bytes_per_second``; None means unlimited."""
        self._limit = bytes_per_second
        self._rate = bytes_per_second
        self._clock = clock
        self._paid_until = 0.0

    def set_share(self, share: float) -> None:
        """Use a part of the limit, 0 to 1: other slots copy partitions of the same flow."""
        if self._limit is not None:
            self._rate = max(1.0, self._limit * share)

    def fetch_bytes(self, most: int) -> int:
        """Return how much to fetch at once, so that the rate is even: at most ``most``."""
        if self._rate is None:
            return most
        return min(most, max(_LEAST_FETCH, int(self._rate * _BURST_S)))

    def spend(self, count: int) -> float:
        """Account for ``count`` bytes; return the seconds to wait before the next ones."""
        if self._rate is None:
            return 0.0
        now = self._clock()
        self._paid_until = max(self._paid_until, now - _BURST_S) + count / self._rate
        return max(0.0, self._paid_until - now)


_PARTITION_BYTES: Final = 1 << 20
_LONG_WAY_PARTITION_BYTES: Final = 32 << 20
_LONG_WAY_S: Final = 0.025
"""Fetches are larger when no poll returns faster than this."""
_RESPONSE_BYTES: Final = 8 << 20
_WAITING_BYTES: Final = 16 << 20
"""Bytes waiting before fetches pause: less than the processor's cache, or two polls."""
_IDLE_WAIT_MS: Final = 500
"""The default of Kafka's consumers. A new partition waits for the next poll."""
_SHORT_WAIT_MS: Final = 5
"""While a partition of ours was left out a moment ago: it is to come back soon."""
_MOMENT_S: Final = 1.0
_WORTH_A_ROUND: Final = 1 << 19
"""Bytes in a fetch below which a little patience makes rounds fewer, and batches larger."""
_RETRY_S: Final = 0.2
_LONG_TURN_S: Final = 0.01

_Key = tuple[bytes, int]


def _key(copy: PartitionCopy) -> _Key:
    return copy.source_id, copy.source.partition


@dataclass(eq=False)
class SourceLoop:
    """Fetches for the partitions that one source broker leads."""

    session: FetchSession
    where: str
    on_data: Callable[[PartitionCopy], None]
    on_trouble: Callable[[PartitionCopy, int, SrmError | None], None]
    quota: Quota
    _: KW_ONLY
    read_committed: bool
    linger_s: float
    _copies: dict[_Key, PartitionCopy] = field(default_factory=dict)
    _changed: dict[_Key, None] = field(default_factory=dict)
    _requested: dict[_Key, FetchFrom] = field(default_factory=dict)
    _left_out: set[_Key] = field(default_factory=set)
    _troubled: dict[_Key, PartitionCopy] = field(default_factory=dict)
    _left_out_at: float = 0.0
    _quickest_s: float = float("inf")
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    known_s: float = float("-inf")

    def __post_init__(self) -> None:
        self._backlog, self._troubles = Backlog(), Troubles(f"source {self.where}")
        self._partition_bytes = _PARTITION_BYTES

    def add(self, copy: PartitionCopy, target_node: int) -> None:
        self._copies[_key(copy)] = copy
        if copy.is_troubled:
            self._troubled[_key(copy)] = copy
        self._backlog.add(copy, target_node)
        self.look_at(copy)

    def remove(self, copy: PartitionCopy) -> None:
        key = _key(copy)
        if self._copies.get(key) is copy:
            del self._copies[key]
            self._troubled.pop(key, None)
            self._backlog.remove(copy)
            self.look_at(copy)

    def look_at(self, copy: PartitionCopy) -> None:
        self._changed[_key(copy)] = None
        self._wake.set()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            limit = max(_WAITING_BYTES, 2 * self._partition_bytes)
            held_or_freed = self._backlog.weigh(limit)
            if held_or_freed is None:
                await self._wake.wait()
                continue
            self._changed.update(dict.fromkeys(map(_key, held_or_freed)))
            self._apply_changes()
            if not self._requested:
                await self._wake.wait()
                continue
            began = now_s()
            room = max(_PARTITION_BYTES, 2 * limit - self._backlog.bytes)
            most = min(room, max(_RESPONSE_BYTES, self._partition_bytes))
            soon = self._left_out and began - self._left_out_at < _MOMENT_S
            try:
                fetched = await self.session.poll(
                    max_wait_ms=_SHORT_WAIT_MS if soon else _IDLE_WAIT_MS,
                    max_bytes=self.quota.fetch_bytes(most),
                )
            except SrmError as error:
                self._troubles.report("fetching", error)
                code = codes.NO_ANSWER if error.retriable else codes.NO_ACCESS
                for key in list(self._requested):
                    if (copy := self._copies.get(key)) is not None:
                        self.on_trouble(copy, code, error)
                await asyncio.sleep(_RETRY_S)  # back-off between connection attempts
                continue
            self._troubles.end("fetching")
            size = await self._dispatch(fetched, now_s() - began)
            self.known_s = began  # the answer may have waited in a process that was suspended
            self._note_answered()
            pause = max(self.quota.spend(size), fetched.throttle_time_ms / 1000)
            if 0 < size < _WORTH_A_ROUND:
                pause = max(pause, self.linger_s)
            if pause > 0:
                # A quota of ours or of the broker (KIP-219), or more that is about to come.
                await asyncio.sleep(pause)

    def _note_answered(self) -> None:
        for key, copy in list(self._troubled.items()):
            if key in self._requested and copy.note_source_answered():
                del self._troubled[key]

    def _apply_changes(self) -> None:
        changed, self._changed = self._changed, {}
        for key in changed:
            copy = self._copies.get(key)
            is_held = copy is not None and self._backlog.holds_back(copy)
            if copy is not None and copy.wants_data and not is_held:
                self._left_out.discard(key)
                epochs = copy.fetch_epoch, copy.source_leader.epoch
                wanted = FetchFrom(*key, copy.fetch_offset, self._partition_bytes, *epochs)
                if self._requested.get(key) != wanted:
                    self._requested[key] = wanted
                    self.session.want(wanted)
                continue
            if copy is None:
                self._left_out.discard(key)
            else:
                self._left_out.add(key)
                self._left_out_at = now_s()
            if self._requested.pop(key, None) is not None:
                self.session.forget(*key)

    def _accept(
        self, copy: PartitionCopy, part: FetchedPartition, owner: object, offset: int
    ) -> IntegrityError | None:
        """Queue what was fetched; return the damage that follows the queued data."""
        try:
            copy.accept(part, owner, offset, read_committed=self.read_committed)
        except IntegrityError as error:
            return error
        except Exception as error:  # what one partition holds must not stop the others
            logger.exception("%s: unexpected failure", copy.source)
            return IntegrityError(f"{copy.source}: unexpected {error!r}", "see the log")
        return None

    async def _dispatch(self, fetched: Fetched, seconds: float) -> int:
        size = largest = 0
        turn_s = now_s()
        for part in fetched.partitions:
            if now_s() - turn_s > _LONG_TURN_S:
                await asyncio.sleep(0)  # claims and answers are not to wait for all of them
                turn_s = now_s()
            key = part.topic_id, part.partition
            copy, request = self._copies.get(key), self._requested.get(key)
            if copy is None or request is None:
                continue
            if part.error != codes.NONE:
                self._changed[key] = None
                if request.offset == copy.fetch_offset:
                    self.on_trouble(copy, part.error, None)
                continue
            length = len(part.records)
            damage = self._accept(copy, part, fetched.owner, request.offset)
            if damage is not None and copy.is_drained:
                self.on_trouble(copy, codes.UNREADABLE, damage)
                continue
            if length:
                size += length
                largest = max(largest, length)
                self._changed[key] = None
                self._backlog.on_data(copy)
                self.on_data(copy)
            if damage is not None and not copy.is_drained:
                # Earlier records are copied first, unless a new claim has begun.
                copy.doubt()
        self._quickest_s = min(self._quickest_s, seconds)
        if self._quickest_s > _LONG_WAY_S and largest > self._partition_bytes // 2:
            self._partition_bytes = min(_LONG_WAY_PARTITION_BYTES, self._partition_bytes * 2)
        return size


class Backlog:
    """Data that one source loop has fetched and each target broker has not yet accepted.

    A slow target broker fills only its share: the whole limit alone, an eighth at least.
    """

    def __init__(self) -> None:
        self._node_of: dict[PartitionCopy, int] = {}
        self._copies: defaultdict[int, dict[PartitionCopy, None]] = defaultdict(dict)
        self._waiting: defaultdict[int, dict[PartitionCopy, None]] = defaultdict(dict)
        self._held: set[int] = set()
        self.bytes = 0
        """Bytes waiting for all brokers at the last weighing."""

    def add(self, copy: PartitionCopy, node: int) -> None:
        self.remove(copy)
        self._node_of[copy] = node
        self._copies[node][copy] = None

    def remove(self, copy: PartitionCopy) -> None:
        node = self._node_of.pop(copy, None)
        if node is None:
            return
        del self._copies[node][copy]
        self._waiting[node].pop(copy, None)
        if not self._copies[node]:
            del self._copies[node], self._waiting[node]
            self._held.discard(node)

    def on_data(self, copy: PartitionCopy) -> None:
        self._waiting[self._node_of[copy]][copy] = None

    def holds_back(self, copy: PartitionCopy) -> bool:
        """Return whether a partition is not fetched because its target broker is full."""
        return self._node_of[copy] in self._held

    def weigh(self, limit: int) -> Collection[PartitionCopy] | None:
        """Return the partitions to pause, until half a broker's share is accepted, or to resume."""
        waiting = {node: self._weight(node) for node in self._copies}
        self.bytes = sum(waiting.values())
        shares = {
            node: max(limit / 8, limit - (self.bytes - weight) / 2)
            for node, weight in waiting.items()
        }
        full = {node for node, weight in waiting.items() if weight >= shares[node]}
        held = {node for node in self._held if waiting[node] > shares[node] / 2}
        if len(full | held) == len(self._copies):
            return None
        changed, self._held = self._held ^ (full | held), full | held
        return [copy for node in changed for copy in self._copies[node]]

    def _weight(self, node: int) -> int:
        left = {copy: None for copy in self._waiting[node] if copy.waiting_bytes}
        self._waiting[node] = left
        return sum(copy.waiting_bytes for copy in left)
