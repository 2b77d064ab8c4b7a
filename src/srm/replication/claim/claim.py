"""Claims: at any time at most one slot can write to a target partition.

Each target partition has one transactional id. Taking it over raises the producer epoch, and an
aborted empty transaction puts a marker with that epoch into the partition's log; once the marker is
there, the broker refuses batches of every older epoch (INVALID_PRODUCER_EPOCH). After that plain
idempotent batches are enough: no transaction is open while records are copied.

Brokers forget idle producers (``producer.id.expiration.ms``) and transactional ids
(``transactional.id.expiration.ms``). An owner that was suspended for longer could write again. So
a claim is used for a quarter of the shorter time only, then renewed. Both are dynamic configs, so
they are read again before claims.

A producer id has 32 767 epochs. The claim after the last one gets another id, whose marker does not
fence holders of the old one. Its owner waits until the last claim under the old id has lapsed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from srm.clock import now_s
from srm.domain.names.topics import Flow, TopicPartition
from srm.errors import SrmError, UnavailableError
from srm.replication.batches.batch import BatchHeader, batches
from srm.replication.log_reader import LogReader, OutOfRangeError
from srm.replication.ports import ProducerId, Wire

_DAY_MS: Final = 86_400_000
_EXPIRATIONS: Final = {
    "producer.id.expiration.ms": _DAY_MS,
    "transactional.id.expiration.ms": 7 * _DAY_MS,
}

LAST_EPOCH: Final = 32_766
"""The coordinator gives a new producer id instead of the highest short, which is its own."""
_ASK_EVERY_S: Final = 60.0
_ASK_S: Final = 2.0
_MARKER_S: Final = 30.0
_FIRST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 0.5

ReadConfigs = Callable[[], Awaitable[Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write to one target partition until ``expires`` (monotonic seconds)."""

    producer: ProducerId
    expires: float

    def holds(self) -> bool:
        """Return whether the claim is still valid."""
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
    """Seconds a claim may be used, from the target broker's expiration settings."""
    shortest = min(int(broker_configs.get(key, default)) for key, default in _EXPIRATIONS.items())
    return shortest / 4000


async def take(wire: Wire, flow: Flow, target: TopicPartition, lifetime_s: float) -> Claim:
    """Fence every older owner of the partition; in force only after :func:`until_in_force`.

    FencedError: another process takes the same claim at this moment.
    """
    name = transactional_id(flow, target)
    expires = now_s() + lifetime_s
    producer = await wire.init_producer_id(name)
    await wire.abort_empty_transaction(name, producer, target)
    return Claim(producer, expires)


class ClaimLifetime:
    """Maximum use of a claim, from the target's configs, queried at most once a minute.

    While brokers do not answer, the last known configs apply.
    """

    def __init__(self, read: ReadConfigs) -> None:
        """``read`` returns brokers' settings, empty where srm has no right to see them."""
        self._read = read
        self._known_s: float | None = None
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def seconds(self) -> float:
        """Return the lifetime of a claim that is taken now; SrmError if brokers never answered."""
        if self._asking is None and now_s() - self._asked_at >= _ASK_EVERY_S:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        if self._asking is not None:
            asking = asyncio.shield(self._asking)
            if self._known_s is None:
                await asking
            else:
                with suppress(SrmError, TimeoutError):
                    async with asyncio.timeout(_ASK_S):
                        await asking
        if self._known_s is None:
            raise UnavailableError("how long brokers remember producers is not known yet")
        return self._known_s

    async def _ask(self) -> None:
        try:
            configs = await self._read()
            if configs or self._known_s is None:
                self._known_s = claim_lifetime_s(configs)
        finally:
            self._asking = None
            if self._known_s is not None:
                self._asked_at = now_s()


def is_marker(batch: BatchHeader, claim: Claim) -> bool:
    """Return whether a batch is the marker of a claim."""
    return (
        batch.is_control
        and batch.producer_id == claim.producer.id
        and batch.producer_epoch == claim.producer.epoch
    )


async def until_in_force(target: LogReader, end: int, claim: Claim) -> None:
    """Wait until the marker of a claim is in the target's log: from then on it is in force.

    The marker comes shortly after the coordinator has promised it, or late where the partition
    lacks in-sync followers. The wait holds no lock and uses no long poll, which would delay all
    later requests on its connection. ``end``: where the log ended before the claim.
    """
    deadline, pause_s = now_s() + _MARKER_S, _FIRST_PAUSE_S
    while now_s() < deadline:
        _, log_end = await target.wire.log_range(target.partition)
        if log_end <= end:
            await asyncio.sleep(pause_s)  # between two looks, longer and longer
            pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)
            continue
        try:
            fetched = await target.fetch(end)
        except OutOfRangeError as error:
            end = max(end, error.log_start)
            continue
        for batch in batches(fetched.records):
            if is_marker(batch, claim):
                return
            end = max(end, batch.last_offset + 1)
    raise UnavailableError(
        f"{target.partition}: the marker of our claim did not reach the log in {_MARKER_S:.0f} s"
    )
