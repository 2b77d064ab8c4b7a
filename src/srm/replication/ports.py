"""Port of the data plane to one Kafka cluster; srm.kafka.wire implements it.

Broker error codes travel as Kafka's numbers: a refused batch is handled by what its code means.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from srm.domain.names.record_headers import Header
from srm.domain.names.topics import TopicPartition
from srm.errors import SrmError, UnavailableError


class DecodedRecord(NamedTuple):
    """One record of a batch; aiokafka's own records have these attributes, too."""

    offset: int
    timestamp: int
    """Epoch milliseconds, -1 for none."""
    key: bytes | None
    value: bytes | None
    headers: list[Header]


class Leader(NamedTuple):
    """The node that leads a partition, and the epoch in which it does."""

    node: int
    epoch: int


NO_LEADER: Final = Leader(-1, -1)


@dataclass(frozen=True, slots=True)
class FetchFrom:
    """One partition in a fetch request. The id protects against a topic that was re-created.

    ``epoch``: leader epoch of the batch before the offset, -1 for no check. A log without that
    epoch up to the offset is another one: the offset is out of its range (KIP-320). In another
    ``leader_epoch`` the broker refuses the fetch; -1 accepts any.
    """

    topic_id: bytes
    partition: int
    offset: int
    max_bytes: int
    epoch: int = -1
    leader_epoch: int = -1


@dataclass(slots=True)
class FetchedPartition:
    """One partition in a fetch response; ``records`` are raw batches, writable and shared.

    ``aborted`` lists (producer id, first offset) of aborted transactions in the range.
    """

    topic_id: bytes
    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start: int
    aborted: tuple[tuple[int, int], ...]
    records: memoryview


@dataclass(frozen=True, slots=True)
class Fetched:
    """A fetch response; the records stay valid as long as ``owner`` is referenced.

    ``throttle_time_ms``: pause that the broker's quota demands (KIP-219).
    """

    partitions: list[FetchedPartition]
    owner: object
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class Produced:
    """Answer to one batch: an error code, or the offset its first record was given.

    ``records`` are the indexes of the records to blame, where the broker names them.
    """

    error: int
    base_offset: int
    message: str = ""
    records: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ProduceAnswer:
    """Answer to one produce request; ``throttle_time_ms`` as in :class:`Fetched`."""

    partitions: Mapping[TopicPartition, Produced]
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """A leader epoch and its end: where a later one starts, or the log end; -1 if not known.

    An ``epoch`` lower than the requested one: the log has no records of that one, and the end says
    nothing about it.
    """

    epoch: int
    end: int


@dataclass(frozen=True, slots=True)
class ProducerId:
    """A producer id with the epoch that fences its older owners."""

    id: int
    epoch: int


class FetchSession(Protocol):
    """Long polls of one broker, which remembers between them what is wanted (KIP-227)."""

    def want(self, partition: FetchFrom) -> None:
        """Follow a partition from an offset; again whenever the offset has moved."""

    def forget(self, topic_id: bytes, partition: int) -> None: ...

    async def poll(self, *, max_wait_ms: int, max_bytes: int) -> Fetched:
        """Wait for news of the partitions; those without any are left out."""


class ProduceRequest(NamedTuple):
    """One batch for each of some partitions, and the receiver of the results."""

    batches: Sequence[tuple[TopicPartition, memoryview]]
    answered: Callable[[ProduceAnswer | UnavailableError], None]


class Wire(Protocol):
    """The hot path to one cluster; UnavailableError: a connection broke."""

    @property
    def alias(self) -> str: ...

    async def leader(self, partition: TopicPartition) -> Leader:
        """Return the leader of a partition; UnavailableError while there is none."""

    def leaders_changed(self) -> None:
        """Request metadata again: a broker does not lead a partition, or not in this epoch."""

    def fetch_session(self, node: int, *, read_committed: bool) -> FetchSession:
        """Return a session on a connection of its own; connects at the first poll."""

    async def fetch(
        self,
        node: int,
        partitions: Sequence[FetchFrom],
        *,
        max_wait_ms: int,
        max_bytes: int,
        read_committed: bool,
    ) -> Fetched:
        """Fetch once; a batch that holds the wanted offset arrives from its beginning.

        The records need no owner: they stay valid as long as they are referenced. The pauses of a
        quota are waited for.
        """

    async def connect(self, node: int) -> None:
        """Open the connection that :meth:`produce` uses, if it is not open."""

    def produce(self, node: int, requests: Sequence[ProduceRequest]) -> None:
        """Send requests, acks from all in-sync replicas, to be carried out in their order."""

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """Return log start and log end (high watermark) of a partition."""

    async def local_start(self, partition: TopicPartition) -> int:
        """Return the first offset on the leader's own disk; earlier ones are in tiered storage."""

    async def log_end(self, partition: TopicPartition) -> EpochEnd:
        """Return the leader's epoch with the log end (high watermark) in it."""

    async def topic_id(self, topic: str) -> bytes | None:
        """Return the id of the topic that has a name now, None if there is none."""

    async def offset_at(self, partition: TopicPartition, time_ms: int) -> int:
        """Return the first offset whose record has this time or a later one, else the log end."""

    async def epoch_end(self, partition: TopicPartition, epoch: int) -> EpochEnd:
        """Return the newest leader epoch up to one that the log holds, and its end (KIP-320)."""

    async def init_producer_id(self, transactional_id: str) -> ProducerId:
        """Take over a transactional id: every older owner's epoch is outdated from now on."""

    async def abort_empty_transaction(
        self, transactional_id: str, producer: ProducerId, partition: TopicPartition
    ) -> None:
        """Write an abort marker into the partition, which shuts out older epochs there."""


Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Fate of records: ``failed`` places lost some, those of ``pending`` places are in flight.

    ``offsets`` are those of the records acknowledged since the last call, by place and key.
    """

    failed: Mapping[Place, SrmError]
    pending: frozenset[Place]
    offsets: Mapping[Place, Mapping[bytes, int]]


class StateLog(Protocol):
    """Asynchronous writes to internal topics; :meth:`settle` returns their results."""

    def write(self, topic: str, key: bytes, value: bytes | None, partition: int = 0) -> None:
        """Hand over one record, None a tombstone; UnavailableError: too much is waiting already."""

    def waiting(self, place: Place) -> int:
        """Return how many records of a place are not acknowledged yet."""

    def settle(self, places: Collection[Place], timeout_s: float) -> WriteResult:
        """Wait until all records for the places are acknowledged, failed, or late."""

    def flush(self, timeout_s: float) -> None:
        """Wait until all is acknowledged; UnavailableError: not in time, SrmError: refused."""


Clock = Callable[[], int]
"""Epoch milliseconds, where time is data."""
