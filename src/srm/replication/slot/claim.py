"""Claims: at any time at most one slot can write to a target partition.

Each target partition has one transactional id. Taking it over raises the producer epoch, and an
aborted empty transaction puts a marker with that epoch into the partition's log; once the marker is
there, the broker refuses batches of every older epoch (INVALID_PRODUCER_EPOCH). After that plain
idempotent batches are enough: no transaction is open while records are copied.

Brokers forget idle producers (``producer.id.expiration.ms``) and transactional ids
(``transactional.id.expiration.ms``), and an owner that was stopped for longer than that would get
in again. So a claim is used for a quarter of the shorter time only, then taken anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from srm.domain.topics import Flow, TopicPartition
from srm.replication.clock import now_s
from srm.replication.ports import ProducerId, Wire

_DAY_MS: Final = 86_400_000
_EXPIRATIONS: Final = {
    "producer.id.expiration.ms": _DAY_MS,
    "transactional.id.expiration.ms": 7 * _DAY_MS,
}


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write to one target partition until ``expires`` (monotonic seconds)."""

    producer: ProducerId
    expires: float

    def holds(self) -> bool:
        """Whether the claim may still be used."""
        return now_s() < self.expires


def transactional_id(flow: Flow, target: TopicPartition) -> str:
    """Name of the claim on one target partition, the same for every slot and application."""
    return f"srm-{flow}-{target}"


def claim_lifetime_s(broker_configs: Mapping[str, str]) -> float:
    """Seconds a claim may be used, from the target broker's expiration settings."""
    shortest = min(int(broker_configs.get(key, default)) for key, default in _EXPIRATIONS.items())
    return shortest / 4000


async def take(wire: Wire, flow: Flow, target: TopicPartition, lifetime_s: float) -> Claim:
    """Shut out every older owner of the partition.

    The marker may reach the log a little later: it is in force once it has been read back, which
    :func:`srm.replication.slot.resume.resume` does.

    Raises:
        FencedError: somebody else takes the same claim at this moment.
        UnavailableError: the coordinator does not answer.
    """
    name = transactional_id(flow, target)
    expires = now_s() + lifetime_s
    producer = await wire.init_producer_id(name)
    await wire.abort_empty_transaction(name, producer, target)
    return Claim(producer, expires)
