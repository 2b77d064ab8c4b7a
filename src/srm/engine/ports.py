"""What the engine needs of the outside world; srm.kafka fulfils it, srm.testing fakes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from srm.config.model import FlowConfig
from srm.domain.offset_map import OffsetMap
from srm.domain.replication_records import PartitionStatus, SlotReport
from srm.domain.topics import TopicPartition

GroupState = Literal["dead", "empty", "active", "unknown"]


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
    """One consumer group: only ``empty`` and ``dead`` (absent) groups may be written to.

    ``members`` are client ids with hosts, for messages. ``kind`` is the group protocol.
    """

    name: str
    state: GroupState
    kind: Literal["classic", "consumer"] = "classic"
    members: tuple[str, ...] = ()


class CompactedTopic(Protocol):
    """One compacted topic as a table."""

    def read(self) -> dict[bytes, bytes]:
        """Return the latest value of each key up to the end at call time; no topic reads empty."""
        ...

    def write(self, records: Mapping[bytes, bytes | None]) -> None:
        """Write in the given order and wait for all acknowledgements; None is a tombstone."""
        ...


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
        """Return the last stable offset of each partition; unknown partitions are left out."""
        ...

    def groups(self, names: Collection[str] | None = None) -> dict[str, GroupDescription]:
        """Describe all groups, or the named ones (an absent group is ``dead``)."""
        ...

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group; an absent group has none."""
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


@dataclass(frozen=True)
class FlowMaps:
    """The offset maps of one flow, by partition of the source topic.

    A partition whose map cannot be trusted is not in ``maps`` but, with the reason, in ``errors``.
    """

    maps: Mapping[TopicPartition, OffsetMap]
    reports: tuple[SlotReport, ...] = ()
    statuses: Mapping[TopicPartition, PartitionStatus] | None = None
    errors: Mapping[TopicPartition, str] = field(default_factory=dict)

    def get(self, partition: TopicPartition) -> OffsetMap:
        """Return the map of one source partition, an empty one where nothing is known."""
        return self.maps.get(partition, OffsetMap())


class MapReader(Protocol):
    """Reads the offset maps that a flow's replicator keeps on its target."""

    def load(self, topics: Collection[str]) -> FlowMaps:
        """Load the maps of the given source topics (current topic ids only)."""
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
