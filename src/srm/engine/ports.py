"""What the engine needs of the outside world; srm.kafka fulfils it, srm_lab.testing fakes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, Protocol, TypeVar

from srm.config.model import ClientKind, FlowConfig
from srm.domain.flow_state.anomalies import PartitionNotes
from srm.domain.flow_state.pause import Pause
from srm.domain.flow_state.replication_records import PartitionStatus, SlotReport
from srm.domain.moves.routing.redirects import RedirectKind, RedirectOrder
from srm.domain.names.topics import TopicPartition
from srm.domain.names.transactions import OpenTransaction as OpenTransaction  # noqa: PLC0414 -- of the port
from srm.domain.offset_map.map_wanted import WantedOffsets
from srm.domain.offset_map.offset_map import OffsetMap
from srm.domain.verification.comparison import ComparedRecord
from srm.engine.table_ports import CONTROL_ABORT_S as CONTROL_ABORT_S  # noqa: PLC0414 -- of the port
from srm.engine.table_ports import CONTROL_TRANSACTION_S as CONTROL_TRANSACTION_S  # noqa: PLC0414 -- of the port
from srm.engine.table_ports import CompactedTopic as CompactedTopic  # noqa: PLC0414 -- of the port
from srm.engine.table_ports import ControlWriter as ControlWriter  # noqa: PLC0414 -- of the port
from srm.engine.table_ports import Row as Row  # noqa: PLC0414 -- of the port
from srm.engine.table_ports import Stamped as Stamped  # noqa: PLC0414 -- of the port
from srm.errors import SrmError

_T = TypeVar("_T")
ByGroup = tuple[dict[str, _T], dict[str, SrmError]]
"""Answers by group, and the errors of the groups that have none."""

GroupState = Literal["dead", "empty", "active", "unknown"]
GroupKind = Literal["classic", "consumer", "streams", "share", "other"]
"""Group protocol: classic, ``consumer`` (KIP-848), ``streams`` (KIP-1071), ``share`` (KIP-932);
``other`` is a classic group that is not made of consumers, a cluster of Connect workers say."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic as its cluster describes it; ``leaderless`` are partitions that no broker serves.

    That, and the least number of ``replicas`` of a partition, makes no other topic of it.
    """

    name: str
    topic_id: str
    partitions: int
    leaderless: frozenset[int] = field(default=frozenset(), compare=False)
    replicas: int = field(default=1, compare=False)


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
    (``share`` and ``other`` always are ``unknown``); ``action`` is what to do about it.
    """

    name: str
    state: GroupState
    kind: GroupKind = "classic"
    members: tuple[str, ...] = ()
    instance_ids: tuple[str, ...] = ()
    reason: str = ""
    action: str = ""


Place = tuple[TopicPartition, int]
"""A partition and an offset in it."""


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

    def creation_problem(self, spec: TopicSpec) -> SrmError | None:
        """Say why a topic could not be created now, None where it could; nothing is created."""
        ...

    def topic_rights(
        self, topics: Collection[str], client: ClientKind = "admin"
    ) -> dict[str, frozenset[str]]:
        """Return what srm may do with topics: operations as kafka-acls.sh calls them, ``Read`` say.

        Everything where the brokers have no authorizer. Topics that do not exist are left out; one
        that may not even be described has none, whether or not it exists.

        Args:
            topics: their names.
            client: as whom: those that read, write and administer may log in as different users.
        """
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

    def newest_times(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the largest timestamp of each partition's records, in epoch milliseconds.

        Partitions without records, and unknown ones, are left out.
        """
        ...

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offset of the first record with that timestamp (epoch ms) or a later one.

        Partitions without such a record, and unknown ones, are left out.
        """
        ...

    def first_records(
        self, places: Collection[Place], *, committed: bool = True
    ) -> dict[Place, ComparedRecord | None]:
        """Return the first record that a reader from each offset on gets; None: there is none.

        An offset before the log's start counts as that start. Left out are partitions that do not
        exist, offsets beyond the end of the log, and those behind which so much is to be passed
        over (markers, aborted records) that no record was found in a bounded number of requests.

        Args:
            places: where to read; scattered ones at little cost.
            committed: as a reader with isolation.level=read_committed, which sees nothing behind
                the last stable offset; else also what is of transactions not (yet) committed.
        """
        ...

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return up to which offset each log holds a leader epoch (KIP-320).

        -1 where it does not hold it: nothing of it is left, nobody wrote under it, or what was
        written under it was lost. Unknown partitions are left out.
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

    def no_fence_reason(self) -> str:
        """Say why srm cannot deny writes here: no authorizer, no right; empty where it can."""
        ...

    def write_denials(self, topics: Collection[str]) -> frozenset[str]:
        """Return those of the topics to which everybody is denied to write.

        Raises:
            ConfigError: the brokers have no authorizer.
        """
        ...

    def deny_writes(self, topics: Collection[str]) -> None:
        """Deny everybody but super users to write to topics; returns when that is in force.

        Raises:
            ConfigError: the brokers have no authorizer.
        """
        ...

    def allow_writes(self, topics: Collection[str]) -> None:
        """Remove what :meth:`deny_writes` has set, and nothing else; returns when it is gone.

        Raises:
            ConfigError: the brokers have no authorizer.
        """
        ...

    def groups(self, names: Collection[str] | None = None) -> dict[str, GroupDescription]:
        """Describe all groups of all kinds, or the named ones (an absent group is ``dead``).

        A group that cannot be described is ``unknown``, with the reason; the others are described
        all the same. An absent group that has committed offsets is ``unknown`` too.
        """
        ...

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group; an absent group has none.

        Where a transaction is still undecided they are those before it: :meth:`pending_commits`
        says of which partitions.
        """
        ...

    def commits_of(self, groups: Collection[str]) -> ByGroup[dict[TopicPartition, int]]:
        """Return the same of many groups, with a request for many of them.

        Raises:
            UnavailableError: not one group was answered for.
        """
        ...

    def pending_commits(
        self, groups: Collection[str], also: Collection[TopicPartition] = ()
    ) -> ByGroup[frozenset[TopicPartition]]:
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

    def delete_groups(self, groups: Collection[str]) -> None:
        """Delete groups without members, with their offsets; absent ones do not matter.

        Raises:
            GroupActiveError: one has members; the others are deleted.
        """
        ...

    def read_as_member(
        self, group: str, partitions: Collection[TopicPartition], limit_s: float
    ) -> dict[TopicPartition, ComparedRecord | None]:
        """Join a group, as a consumer of it would, and read what its committed offsets lead to.

        Nothing is committed, and the member has left when this returns.

        Args:
            group: the group; its only member gets all partitions of the topics.
            partitions: those to read.
            limit_s: seconds that this may take.

        Returns:
            The first record of each partition, None where its log ends before one; what was not
            reached within the time, or has no committed offset, is left out.
        """
        ...

    def compacted_topic(self, topic: str, partition: int = 0) -> CompactedTopic:
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


@dataclass(frozen=True, slots=True)
class CallResult:
    """How a call ended, and what was said: one line for people."""

    done: bool
    said: str


class Caller(Protocol):
    """Tells clients by other means than routing records: a webhook, a command."""

    @property
    def limit_s(self) -> float:
        """Seconds within which a call ends, all its attempts included."""
        ...

    def call(self, order: RedirectOrder, cancelled: threading.Event) -> CallResult:
        """Tell what an order says, however often it takes; the same order may come again.

        Ends soon after ``cancelled`` is set. Raises nothing: what went wrong is the answer.
        """
        ...


class FlowSwitch(Protocol):
    """Stops the copying of one flow and lets it go on, by what is on its target alone."""

    def pause(self, wanted: Pause, request: str | None = None) -> None:
        """Keep anything from being assigned to anybody until :meth:`resume`; safe to repeat.

        A pause that stands already is joined. One without a request id is given one.

        Args:
            wanted: the pause.
            request: of the pause that is to be joined; any, or none, without it.

        Raises:
            ConflictError: that pause is over, or another one has replaced it.
            NotFoundError: the flow has never copied anything: its target has no state topic.
            UnavailableError: the target does not answer, or somebody else takes over; repeat it.
        """
        ...

    def seal(self, copies: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """Shut out whoever may still be writing to copies; call it after :meth:`pause`.

        After that nothing is added to them while the pause stands.

        Returns:
            Those that could not be sealed, with the reason.
        """
        ...

    def resume(
        self, decided: Mapping[bytes, bytes] = MappingProxyType({}), request: str | None = None
    ) -> bool:
        """End the pause: partitions are given out again; safe to repeat.

        Args:
            decided: records for the partition of commands that are in force from then on: written
                in the same transaction, and not at all where no pause stands.
            request: of the pause that is meant; any without it.

        Returns:
            Whether a pause stood.

        Raises:
            ConflictError: another one stands than that which is meant.
            UnavailableError: the target does not answer, or somebody else takes over; repeat it.
        """
        ...

    def leave(self, move_id: str) -> None:
        """Take a move off the pause, which ends where no other relies on it; safe to repeat.

        Raises:
            UnavailableError: the target does not answer, or somebody else takes over; repeat it.
        """
        ...


@dataclass(frozen=True)
class FlowContext:
    """One flow as the engine sees it: settings, both clusters, both maps, the clock.

    ``maps`` belongs to this flow (its records are on the target), ``reverse_maps`` to the opposite
    flow (its records are on this flow's source). ``now_ms`` is epoch milliseconds. ``switch``
    pauses and resumes this flow. ``callers`` are the redirectors of moves in this direction, beside
    routing, that can be called. ``opposite`` are the settings of the opposite flow.
    """

    config: FlowConfig
    source: Cluster
    target: Cluster
    maps: MapReader
    reverse_maps: MapReader
    now_ms: Callable[[], int]
    callers: Mapping[RedirectKind, Caller] = field(default_factory=dict)
    switch: FlowSwitch | None = None
    opposite: FlowConfig | None = None
