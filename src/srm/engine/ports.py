"""What the engine needs of the outside world; srm.kafka fulfils it, srm.testing fakes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from srm.config.model import FlowConfig
from srm.domain.map_wanted import WantedOffsets
from srm.domain.offset_map import OffsetMap
from srm.domain.partition_notes import PartitionNotes
from srm.domain.replication_records import PartitionStatus, SlotReport
from srm.domain.topics import TopicPartition
from srm.domain.transactions import OpenTransaction as OpenTransaction  # noqa: PLC0414 -- of the port

GroupState = Literal["dead", "empty", "active", "unknown"]
GroupKind = Literal["classic", "consumer", "streams", "share", "other"]
"""Group protocol: classic, ``consumer`` (KIP-848), ``streams`` (KIP-1071), ``share`` (KIP-932);
``other`` is a classic group that is not made of consumers, a cluster of Connect workers say."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic as its cluster describes it; ``configs`` only where they were asked for."""

    name: str
    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group: only ``empty`` and ``dead`` (absent) groups may be written to.

    ``members`` are client ids with hosts, for messages; ``instance_ids`` those of static members
    (KIP-345). ``reason`` says why the state is ``unknown``: a missing right, a coordinator that
    does not answer, offsets of a group that is nowhere, or a kind that srm does not write to
    (``share`` and ``other`` always are ``unknown``).
    """

    name: str
    state: GroupState
    kind: GroupKind = "classic"
    members: tuple[str, ...] = ()
    instance_ids: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """An idempotent or transactional producer that a partition's leader remembers (KIP-664).

    The leader forgets it ``producer.id.expiration.ms`` (a day) after its last record. Producers
    without idempotence leave no trace. ``last_timestamp_ms`` is the timestamp of its last batch:
    the producer's clock, or the broker's where the topic has LogAppendTime.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    last_timestamp_ms: int
    last_sequence: int


@dataclass(frozen=True, slots=True)
class Stamped:
    """A value with its record's timestamp in epoch milliseconds.

    ``by_broker``: by the broker's clock, as the topic had ``message.timestamp.type=LogAppendTime``;
    else by the writer's.
    """

    value: bytes
    timestamp_ms: int
    by_broker: bool = False


Row = tuple[bytes, bytes | None]
"""Key and value of a record; None is a tombstone."""


class CompactedTopic(Protocol):
    """One compacted topic as a table."""

    def read(self) -> dict[bytes, bytes]:
        """Return the latest value of each key up to the end at call time; no topic reads empty."""
        ...

    def read_stamped(self) -> dict[bytes, Stamped]:
        """Return what :meth:`read` returns, with timestamps."""
        ...

    def read_history(self) -> dict[bytes, tuple[Stamped, ...]]:
        """Return all values of each key that the log still holds, oldest first.

        A tombstone ends a row: what was before it is not returned. Records of transactions that
        are open, or were aborted, are not seen by any read.
        """
        ...

    def scan(self, visit: Callable[[int, bytes, bytes | None], None]) -> None:
        """Show all records up to the end at call time: offset, key, and value (None: tombstone).

        In the order of the log, and without keeping them; what breaks off begins again, so a record
        may be shown twice. No topic has none.
        """
        ...

    def at(self, offsets: Collection[int]) -> dict[int, Row]:
        """Return the records that stand at these offsets, scattered ones too, at little cost.

        An offset where none stands (compacted away, not written yet, a marker's) is left out, as
        all are while the topic does not exist.

        Raises:
            IntegrityError: the log is damaged there.
        """
        ...

    def write(self, records: Mapping[bytes, bytes | None]) -> int | None:
        """Write in the given order and wait for all acknowledgements; None is a tombstone.

        Returns:
            When the last record was written by the clock of the broker, in epoch milliseconds;
            None where the topic does not have ``message.timestamp.type=LogAppendTime``.
        """
        ...


class ControlWriter(Protocol):
    """The one writer of control records between two clusters, on one of them.

    Opening it has shut out every older one of the same transactional id, and ended what they had
    begun, so whatever is read after that is not overtaken by them.
    """

    def write(
        self,
        tables: Mapping[str, Mapping[bytes, bytes | None]],
        before_commit: Callable[[], None] = lambda: None,
    ) -> Mapping[str, int]:
        """Write records by topic, partition 0, in one transaction; None is a tombstone.

        That this succeeds proves that no other writer was opened since this one was, and all reads
        that begin after it see what was written. The brokers
        abort a transaction that is not committed within :data:`CONTROL_TRANSACTION_S`.

        Args:
            tables: the records, in their order.
            before_commit: called when brokers have all records and the transaction's time runs;
                what it raises ends the call, and nothing was written.

        Returns:
            When the last record of each topic was written by the clock of the broker, in epoch
            milliseconds; only of topics with ``message.timestamp.type=LogAppendTime``.

        Raises:
            FencedError: another one was opened since; nothing was written. This one is of no more
                use.
            UnavailableError: it is not known whether it was written; who opens next finds out.
        """
        ...

    def close(self) -> None:
        """Drop the writer."""
        ...


CONTROL_TRANSACTION_S: Final = 5.0
"""Seconds a control transaction may stay open: until then a paused process can still commit."""

CONTROL_ABORT_S: Final = 10.0
"""Seconds until a broker notices that: transaction.abort.timed.out.transaction.cleanup.interval.ms,
by default."""


class Cluster(Protocol):
    """One Kafka cluster. Every call raises UnavailableError or AuthorizationError as they occur."""

    @property
    def alias(self) -> str:
        """Alias in the configuration."""
        ...

    def cluster_id(self) -> str:
        """Kafka's own id of the cluster."""
        ...

    def topics(self) -> dict[str, TopicDescription]:
        """Describe all topics, internal ones included."""
        ...

    def partition_counts(self) -> dict[str, int]:
        """Return all topics with their partition counts: a tenth of the cost of topics()."""
        ...

    def topic_configs(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the non-default, non-sensitive, topic-level configs of the topics."""
        ...

    def create_topics(self, specs: Collection[TopicSpec]) -> None:
        """Create topics; one that exists is left as it is."""
        ...

    def create_partitions(self, counts: Mapping[str, int]) -> None:
        """Grow topics to the given partition counts."""
        ...

    def alter_topic_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> None:
        """Set topic configs incrementally; None deletes an override."""
        ...

    def log_starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset each partition still holds; unknown partitions are left out."""
        ...

    def log_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the last stable offset of each partition; unknown partitions are left out.

        It stands still while a transaction is open, whatever other producers write meanwhile.
        """
        ...

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after each partition's last record; unknown ones are left out.

        Records of open transactions, and those behind them, are counted.
        """
        ...

    def open_transactions(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[OpenTransaction, ...]]:
        """Return the open transactions, by first offset, of the partitions that have any."""
        ...

    def active_producers(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """Return the producers that leaders remember, by id, of the partitions that have any."""
        ...

    def transactional_topics(self) -> tuple[frozenset[str], ...] | None:
        """Return the sets of topics that one transaction was seen to write together.

        Of sets within each other only the largest; internal topics are left out. None where it
        cannot be known: ``__transaction_state`` may not be read, or not whole within the time.
        What the log has been compacted to is all there is to see: some transactions left no trace.
        """
        ...

    def groups(self, names: Collection[str] | None = None) -> dict[str, GroupDescription]:
        """Describe all groups of all kinds, or the named ones (an absent group is ``dead``).

        A group that cannot be described is ``unknown``, with the reason; the others are described
        all the same. An absent group that has committed offsets is ``unknown`` too.
        """
        ...

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group; an absent group has none.

        Where a transaction is still undecided they are those before it: :meth:`pending_commits`
        says of which partitions.
        """
        ...

    def pending_commits(
        self, group: str, also: Collection[TopicPartition] = ()
    ) -> frozenset[TopicPartition]:
        """Return the partitions for which a transaction that commits offsets is undecided.

        Brokers answer for the partitions of which the group has committed offsets already. Of
        others, of which the first commit may be pending, they have to be asked by name: ``also``.
        """
        ...

    def remove_static_members(self, group: str, instance_ids: Collection[str]) -> None:
        """Remove static members from a group at once; those that are gone already do not matter.

        A client that still runs with such an instance id is fenced, or joins again.
        """
        ...

    def commit_idle(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Write offsets of a group without members.

        Raises:
            GroupActiveError: the group has members.
        """
        ...

    def compacted(self, topic: str, partition: int = 0) -> CompactedTopic:
        """Give access to one partition of a compacted topic (not created by this call)."""
        ...

    def control_writer(self, transactional_id: str) -> ControlWriter:
        """Open the writer of control records: every older one of this id is shut out from now on.

        Everything that was committed before is seen by reads after this call.
        """
        ...


@dataclass(frozen=True)
class FlowMaps:
    """The offset maps of one flow, by partition of the source topic.

    A partition whose map cannot be trusted is not in ``maps`` but, with the reason, in ``errors``.
    ``gaps`` say of maps what of them is lost: only what is in it cannot be translated. ``notes``
    are those that slots keep of what they could not copy.
    """

    maps: Mapping[TopicPartition, OffsetMap]
    reports: tuple[SlotReport, ...] = ()
    statuses: Mapping[TopicPartition, PartitionStatus] | None = None
    errors: Mapping[TopicPartition, str] = field(default_factory=dict)
    notes: Mapping[TopicPartition, tuple[PartitionNotes, ...]] = field(default_factory=dict)
    gaps: Mapping[TopicPartition, str] = field(default_factory=dict)

    def get(self, partition: TopicPartition) -> OffsetMap:
        """Return the map of one source partition, an empty one where nothing is known."""
        return self.maps.get(partition, OffsetMap())


class MapReader(Protocol):
    """Reads the offset maps that a flow's replicator keeps on its target."""

    def load(self, topics: Collection[str], wanted: WantedOffsets | None = None) -> FlowMaps:
        """Load the maps of the given source topics (current topic ids only).

        Args:
            topics: whose positions, statuses and notes are wanted.
            wanted: the offsets that the maps will be asked for, by source partition; others may
                raise NotLoadedError. Of partitions that it does not name, maps hold no more than
                the position. Without it the maps are loaded whole.
        """
        ...


@dataclass(frozen=True)
class FlowContext:
    """One flow as the engine sees it: settings, both clusters, both maps, the clock.

    ``maps`` belongs to this flow (its records are on the target), ``reverse_maps`` to the opposite
    flow (its records are on this flow's source). ``now_ms`` is epoch milliseconds.
    """

    config: FlowConfig
    source: Cluster
    target: Cluster
    maps: MapReader
    reverse_maps: MapReader
    now_ms: Callable[[], int]
