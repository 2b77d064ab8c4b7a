"""Ports of the engine for one Kafka cluster, by subject; srm.kafka implements them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn, Protocol, TypeVar, cast

from srm.config.model import ClientKind
from srm.domain.names.record_headers import ClusterIds, RecordSettings
from srm.domain.names.rights import Acl
from srm.domain.names.topics import ActiveProducer, OpenTransaction, TopicPartition
from srm.domain.verification.compared_record import ComparedRecord
from srm.errors import GivenUpError, SrmError, UnavailableError

log = logging.getLogger(__name__)

CONTROL_TRANSACTION_S: Final = 5.0
"""Seconds that a control transaction may stay open; a paused process can commit until then."""
CONTROL_ABORT_S: Final = 10.0
"""Seconds until a broker aborts it after that: the default of
``transaction.abort.timed.out.transaction.cleanup.interval.ms``."""

_T = TypeVar("_T")
ByGroup = tuple[dict[str, _T], dict[str, SrmError]]
"""Results by group, and the errors of the groups without a result."""
Place = tuple[TopicPartition, int]
"""A partition and an offset."""
Row = tuple[bytes, bytes | None]
"""Key and value of a record; None is a tombstone."""
QuotaEntity = tuple[tuple[str, str | None], ...]
"""Types and names of what a quota limits, such as ``user`` and ``client-id``; None: the default."""
SettingOrigin = Literal["topic", "dynamic", "static", "default"]
"""Origin of a value: the topic, a dynamic setting of brokers, their file, Kafka's default."""
GroupState = Literal["dead", "empty", "active", "unknown"]
GroupKind = Literal["classic", "consumer", "streams", "share", "other"]
"""Group protocol: classic, ``consumer`` (KIP-848), ``streams`` (KIP-1071), ``share`` (KIP-932);
``other`` is a classic group of other clients than consumers, for example Connect workers."""


@dataclass(frozen=True, slots=True)
class Stamped:
    """A value with its record's timestamp in epoch milliseconds.

    ``by_broker``: the broker's clock (``message.timestamp.type=LogAppendTime``), else the writer's.
    """

    value: bytes
    timestamp_ms: int
    by_broker: bool = False


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic; the least number of ``replicas`` of a partition.

    ``leaderless``: partitions without a leader, with the ids of their brokers.
    """

    name: str
    topic_id: str
    partitions: int
    leaderless: Mapping[int, tuple[int, ...]] = field(default_factory=dict, compare=False)
    replicas: int = field(default=1, compare=False)


Topics = Mapping[str, TopicDescription]


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """The value of a topic's setting that is in effect, and where it is set."""

    value: str = ""
    origin: SettingOrigin = "topic"


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group: only ``empty`` and ``dead`` (absent) groups may be written to.

    ``members`` are client ids with hosts, for messages; ``ids`` the brokers' ids of the same
    members, in the same order; ``instance_ids`` those of static members (KIP-345). ``reason``
    explains the state ``unknown``, which ``other`` groups always have. ``action`` is the remedy.
    """

    name: str
    state: GroupState
    kind: GroupKind = "classic"
    members: tuple[str, ...] = ()
    instance_ids: tuple[str, ...] = ()
    reason: str = ""
    action: str = ""
    ids: tuple[str, ...] = ()

    @property
    def by_id(self) -> tuple[tuple[str, str], ...]:
        """Each member by its id, empty if not known, with its client id and host."""
        return tuple(zip(self.ids or [""] * len(self.members), self.members, strict=True))


class CompactedTopic(Protocol):
    """One partition of a compacted topic as a table; a missing topic has no records.

    No read returns records of open or aborted transactions.
    """

    def read(self) -> dict[bytes, bytes]:
        """Return the latest value of each key up to the current end."""

    def read_stamped(self) -> dict[bytes, Stamped]:
        """Return the result of :meth:`read` with timestamps."""

    def read_history(self) -> dict[bytes, tuple[Stamped, ...]]:
        """Return all values of each key after its last tombstone, oldest first."""

    def scan(self, visit: Callable[[int, bytes, bytes | None], None]) -> None:
        """Visit offset, key and value (None: tombstone) of all records in log order.

        An interrupted scan restarts, so a record may be visited twice.
        """

    def at(self, offsets: Collection[int]) -> dict[int, Row]:
        """Return the records at these offsets, which may be scattered; IntegrityError on damage.

        Offsets without a record (compacted, not written yet, a marker) are omitted.
        """

    def write(self, records: Mapping[bytes, bytes | None]) -> int | None:
        """Write in the given order and wait for all acknowledgements; None is a tombstone.

        Return the broker's time of the last record in epoch ms, None without LogAppendTime.
        """


class ControlWriter(Protocol):
    """The only writer of control records between two clusters, on one of them.

    Opening it fences every older writer with the same transactional id and ends their transactions.
    Older writers cannot change what is read after that.
    """

    def write(
        self,
        tables: Mapping[str, Mapping[bytes, bytes | None]],
        before_commit: Callable[[], None] = lambda: None,
    ) -> Mapping[str, int]:
        """Write records by topic, partition 0, in order in one transaction; None is a tombstone.

        Success proves that no other writer was opened after this one. All later reads see the
        records. Brokers abort a transaction that is not committed within
        :data:`CONTROL_TRANSACTION_S`. ``before_commit`` is called when brokers have all records; an
        exception ends the call, and nothing was written. Return the broker's time of the last
        record of each topic with LogAppendTime, in epoch ms.

        Raises:
            FencedError: a newer writer was opened; nothing was written. Drop this one.
            UnavailableError: the outcome is unknown; the next writer to open finds it out.
        """

    def close(self) -> None:
        """Drop the writer."""


class Cluster(Protocol):
    """One Kafka cluster. Every call may raise UnavailableError or AuthorizationError.

    Results by partition omit unknown ones. Calls about ACLs raise ConfigError where the brokers
    have no authorizer, writes of groups GroupActiveError for one with members.
    """

    @property
    def alias(self) -> str:
        """Alias in the configuration."""

    def cluster_id(self) -> str:
        """Kafka's own id of the cluster."""

    def broker_configs(self) -> dict[str, str]:
        """Return the configs of the brokers, the smallest of different numbers; empty unauthorized.

        Brokers leave out what their release does not have.
        """

    # ----- tables and control records

    def compacted_topic(self, topic: str, partition: int = 0) -> CompactedTopic:
        """Return one partition of a compacted topic as a table; the topic is not created."""

    def control_writer(self, transactional_id: str) -> ControlWriter:
        """Open the writer of control records; later reads see all that was committed before."""

    # ----- topics

    def topics(self) -> dict[str, TopicDescription]:
        """Describe all topics, internal ones included."""

    def partition_counts(self, topics: Collection[str] | None = None) -> dict[str, int]:
        """Return the partition counts of all topics or of some, without the rest of topics()."""

    def topic_settings(self, topics: Collection[str]) -> dict[str, dict[str, TopicSetting]]:
        """Return all values in effect that can be set and shown; missing topics are omitted."""

    def create_topics(self, specs: Collection[TopicSpec]) -> None:
        """Create topics; existing topics are not changed."""

    def creation_problems(self, specs: Collection[TopicSpec]) -> dict[str, SrmError]:
        """Return why topics cannot be created now, by those that cannot; nothing is created."""

    def change_problem(self, topic: str, changes: Mapping[str, str | None]) -> SrmError | None:
        """Return why topic configs cannot be changed now, None if they can; nothing is changed."""

    def create_partitions(self, counts: Mapping[str, int]) -> None:
        """Increase topics to the given partition counts."""

    def alter_topic_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> None:
        """Set topic configs incrementally; None deletes an override."""

    # ----- logs

    def log_starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition."""

    def log_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the last stable offset of each partition; an open transaction holds it back."""

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermark of each partition, which counts open transactions."""

    def newest_times(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the largest timestamp (epoch ms) of each partition with records."""

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offset of the first record at or after a time (epoch ms), if there is one."""

    def first_records(
        self, places: Collection[Place], *, committed: bool = True
    ) -> dict[Place, ComparedRecord | None]:
        """Return the first record at or after each offset or log start, None without one.

        Offsets beyond the end of the log are omitted. So are offsets followed by too many markers
        and aborted records to find a record in a bounded number of requests. ``committed``: read as
        isolation.level=read_committed; else with records of open and aborted transactions.
        """

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the end offset of a leader epoch in each log (KIP-320), -1 if the log lacks it."""

    # ----- transactions and producers

    def open_transactions(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[OpenTransaction, ...]]:
        """Return the open transactions, by first offset, of the partitions that have any."""

    def active_producers(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """Return the producers that leaders track, by id, of the partitions that have any."""

    def transactional_topics(self) -> tuple[frozenset[str], ...] | None:
        """Return the sets of topics that one transaction has written together.

        Subsets of another set, internal topics and transactions that compaction has removed are
        omitted. None if ``__transaction_state`` may not be read, or not completely in time.
        """

    # ----- rights, ACLs, quotas and users

    def topic_rights(
        self, topics: Collection[str], client: ClientKind = "admin"
    ) -> dict[str, frozenset[str]]:
        """Return a client's rights on topics, as operations of kafka-acls.sh such as ``Read``.

        All operations where the brokers have no authorizer, none without the right to describe.
        """

    def acls(self) -> frozenset[Acl]:
        """Return the ACLs on topics, groups and transactional ids."""

    def create_acls(self, acls: Collection[Acl]) -> None:
        """Add ACLs; return when they are in force. Existing ones do not matter."""

    def delete_acls(self, acls: Collection[Acl]) -> None:
        """Remove ACLs; return when they are gone. Missing ones do not matter."""

    def quotas(self) -> dict[QuotaEntity, dict[str, float]]:
        """Return the client quotas: limits by their keys, by entity."""

    def scram_users(self) -> frozenset[str]:
        """Return the users with SCRAM credentials."""

    def no_fence_reason(self) -> str:
        """Return why srm cannot change ACLs here (no authorizer, no right); empty if it can."""

    def write_denials(self, topics: Collection[str]) -> frozenset[str]:
        """Return the topics to which all users are denied to write."""

    def deny_writes(self, topics: Collection[str]) -> None:
        """Deny all users but super users to write to topics; return when that is in force."""

    def allow_writes(self, topics: Collection[str]) -> None:
        """Remove only the ACLs of :meth:`deny_writes`; return when they are gone."""

    # ----- groups and their committed offsets

    def groups(self, names: Collection[str] | None = None) -> dict[str, GroupDescription]:
        """Describe all groups of all kinds, or the named ones (an absent group is ``dead``).

        ``unknown`` are groups that cannot be described, and absent ones with committed offsets.
        """

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group, start offsets of a share group.

        Commits of open transactions do not count, see :meth:`pending_commits`.
        """

    def commits_of(self, groups: Collection[str]) -> ByGroup[dict[TopicPartition, int]]:
        """Return the offsets of many groups in few requests; UnavailableError if none is read."""

    def pending_commits(
        self, groups: Collection[str], also: Collection[TopicPartition] = ()
    ) -> ByGroup[frozenset[TopicPartition]]:
        """Return the partitions with a pending offset commit of an open transaction.

        ``also``: partitions without a committed offset, whose first commit may be pending.
        """

    def remove_static_members(self, group: str, instance_ids: Collection[str]) -> None:
        """Remove static members from a group at once; absent members are ignored.

        A client that still runs with such an instance id is fenced, or joins again.
        """

    def remove_members(self, group: str, ids: Collection[str]) -> None:
        """Remove the members, meant to be dead, with these ids; a live one joins again."""

    def commit_idle(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Write offsets of a group without members."""

    def group_kinds(self) -> frozenset[GroupKind]:
        """Return the group protocols that the cluster admits; share groups if starts can be set."""

    def share_groups(self) -> frozenset[str]:
        """Return the names of all share groups (KIP-932)."""

    def share_lags(self, groups: Collection[str]) -> ByGroup[dict[TopicPartition, int]]:
        """Return the lags of share groups, without 0: unacknowledged offsets (KIP-1226)."""

    def share_resets(self, groups: Collection[str]) -> dict[str, str]:
        """Return ``share.auto.offset.reset`` in effect for groups."""

    def set_share_starts(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set start offsets of a share group without members; an absent group is created."""

    def delete_groups(self, groups: Collection[str]) -> None:
        """Delete groups without members, with their offsets; absent groups are ignored."""

    def read_as_member(
        self,
        group: str,
        partitions: Collection[TopicPartition],
        limit_s: float,
        kind: GroupKind = "classic",
    ) -> dict[TopicPartition, ComparedRecord | None]:
        """Join a group as its only member and read the first record after each committed offset.

        ``kind``: its protocol; those other than ``consumer`` join as classic members.
        Nothing is committed, and the member has left on return. None where a log ends before a
        record. Partitions not reached in time, or without a committed offset, are omitted.
        """


def cluster_ids(records: RecordSettings, source: Cluster, target: Cluster) -> ClusterIds:
    """Return the clusters' ids, empty where records are copied unchanged and need none."""
    if records.does_nothing:
        return ClusterIds("", "")
    return ClusterIds(source.cluster_id(), target.cluster_id())


def away_cluster(alias: str, why: SrmError | None = None) -> Cluster:
    """Return a cluster of which every call raises ``why`` at once, by default GivenUpError.

    So an unplanned move takes the same time for a dead, hanging or running source.
    """
    return cast("Cluster", _Away(alias, why))


def loudness(error: SrmError) -> int:
    """Return the log level for a failed call: DEBUG for an abandoned cluster, else WARNING."""
    return logging.DEBUG if isinstance(error, GivenUpError) else logging.WARNING


def tolerate(
    act: Callable[[], _T], trouble: str, of: type[SrmError] = UnavailableError
) -> _T | None:
    """Return the result of a call that the caller can do without; None after a logged failure."""
    try:
        return act()
    except of as error:
        log.log(loudness(error), "%s: %s", trouble, error)
        return None


def answers(cluster: Cluster) -> bool:
    """Return whether a cluster lists its topics."""
    return tolerate(cluster.topics, f"cluster {cluster.alias}") is not None


class _Away:
    """Implements every call of the port, and of the tables that it returns."""

    def __init__(self, alias: str, why: SrmError | None) -> None:
        self.alias = alias
        given_up = f"this move has abandoned cluster {alias}: no request was sent"
        self._why = why or GivenUpError(given_up)

    def compacted_topic(self, *_which: object) -> _Away:
        return self

    def __getattr__(self, call: str) -> Any:
        def raise_away(*_arguments: object, **_named: object) -> NoReturn:
            raise type(self._why)(self._why.what, self._why.action)

        if call.startswith("__"):
            raise AttributeError(call)
        return raise_away
