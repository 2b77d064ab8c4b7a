"""A real Kafka cluster behind the engine's port."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Self

from srm.config.model import ClientKind
from srm.domain.names.acls import Acl
from srm.domain.names.topics import TopicPartition
from srm.domain.names.transactions import ActiveProducer, OpenTransaction
from srm.domain.verification.compared_record import ComparedRecord
from srm.engine.cluster_ports import (
    ByGroup,
    GroupDescription,
    Place,
    QuotaEntity,
    TopicDescription,
    TopicSetting,
    TopicSpec,
)
from srm.engine.table_ports import CompactedTopic
from srm.errors import SrmError
from srm.kafka.admin import acls as acl_calls
from srm.kafka.admin import epoch_ends as epoch_calls
from srm.kafka.admin import group_descriptions, topic_rights, transaction_log, users
from srm.kafka.admin import groups as group_calls
from srm.kafka.admin import offsets as offset_calls
from srm.kafka.admin import topics as topic_calls
from srm.kafka.admin import transactions as transaction_calls
from srm.kafka.admin.clients import DEFAULT_TIMEOUT_S, Clients, answer_of
from srm.kafka.admin.cluster_facts import ClusterFacts, read_facts
from srm.kafka.state.control_writer import KafkaControlWriter
from srm.kafka.tables import first_records as record_calls
from srm.kafka.tables import group_member as member_calls
from srm.kafka.tables.compacted import KafkaCompactedTopic
from srm.kafka.tables.live_tables import LiveTables, Sink


class KafkaCluster:
    """One Kafka cluster (implements :class:`srm.engine.cluster_ports.Cluster`).

    The constructor does no I/O. Each call ends within ``timeout_s`` or raises UnavailableError;
    what a broker answers with "try again" is tried again until then. Threads may share it.

    Args:
        alias: name of the cluster in the configuration.
        admin_props: librdkafka properties of the admin client, ``bootstrap.servers`` included.
        consumer_props: the same for consumers.
        producer_props: the same for producers.
        timeout_s: seconds that each call may take.
        follow: keep the compacted topics that are read in memory, seconds fresh.
        fresh: follow only what is read, each time up to its end at the call.
    """

    def __init__(
        self,
        alias: str,
        admin_props: Mapping[str, str],
        consumer_props: Mapping[str, str],
        producer_props: Mapping[str, str],
        timeout_s: float = DEFAULT_TIMEOUT_S,
        *,
        follow: bool = False,
        fresh: bool = False,
    ) -> None:
        self._clients = Clients(alias, admin_props, consumer_props, producer_props, timeout_s)
        self._tables = LiveTables(self._clients, fresh=fresh) if follow else None
        self._id: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all clients."""
        if self._tables is not None:
            self._tables.close()
        self._clients.close()

    @property
    def alias(self) -> str:
        """Alias in the configuration."""
        return self._clients.alias

    def follow(self, topic: str, sink: Sink) -> None:
        """Read a compacted topic of one partition into a sink from now on.

        Raises:
            RuntimeError: the cluster was not opened to follow.
        """
        if self._tables is None:
            raise RuntimeError(f"{self.alias} was not opened to follow topics")
        self._tables.follow(topic, sink)

    def cluster_id(self) -> str:
        """Kafka's own id of the cluster."""
        if self._id is None:
            self._id = self._clients.call(
                "describing the cluster",
                lambda timeout_s: str(
                    answer_of(
                        self._clients.admin().describe_cluster(request_timeout=timeout_s),
                        timeout_s,
                    ).cluster_id
                ),
            )
        return self._id

    def facts(self) -> ClusterFacts:
        """Return release and clock of the brokers."""
        return read_facts(self._clients)

    def topics(self) -> dict[str, TopicDescription]:
        """Describe all topics, internal ones included."""
        return topic_calls.describe(self._clients)

    def partition_counts(self) -> dict[str, int]:
        """Return all topics with their partition counts: one cheap request."""
        return topic_calls.names(self._clients)

    def topic_configs(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the overrides of the topics; one that does not exist is left out."""
        return topic_calls.overrides(self._clients, topics)

    def topic_settings(self, topics: Collection[str]) -> dict[str, dict[str, TopicSetting]]:
        """Return the values in effect of the topics; one that does not exist is left out."""
        return topic_calls.settings(self._clients, topics)

    def create_topics(self, specs: Collection[TopicSpec]) -> None:
        """Create topics and wait until they are visible; existing topics are not changed."""
        topic_calls.create(self._clients, specs)

    def creation_problem(self, spec: TopicSpec) -> SrmError | None:
        """Ask the cluster to check a creation without doing it; return why it would refuse."""
        return topic_calls.creation_problem(self._clients, spec)

    def topic_rights(
        self, topics: Collection[str], client: ClientKind = "admin"
    ) -> dict[str, frozenset[str]]:
        """Return the operations that a client may do with topics."""
        return topic_rights.operations(self._clients, topics, client)

    def create_partitions(self, counts: Mapping[str, int]) -> None:
        """Grow topics; one that is as large already is left alone."""
        topic_calls.grow(self._clients, counts)

    def alter_topic_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> None:
        """Set topic configs incrementally; None deletes an override."""
        topic_calls.alter(self._clients, changes)

    def log_starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset each partition still holds; unknown ones are left out."""
        return offset_calls.log_starts(self._clients, partitions)

    def log_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the last stable offset of each partition; unknown ones are left out."""
        return offset_calls.log_ends(self._clients, partitions)

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after each partition's last record; unknown ones are left out."""
        return offset_calls.high_watermarks(self._clients, partitions)

    def newest_times(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the largest timestamp of each partition's records; empty ones are left out."""
        return offset_calls.newest_times(self._clients, partitions)

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offset of the first record with that timestamp or a later one."""
        return offset_calls.offsets_at(self._clients, times)

    def first_records(
        self, places: Collection[Place], *, committed: bool = True
    ) -> dict[Place, ComparedRecord | None]:
        """Return the first record that a reader from each offset on gets; None: there is none."""
        return record_calls.first_records(self._clients, places, committed=committed)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return up to which offset each log holds a leader epoch, -1 if it does not."""
        return epoch_calls.epoch_ends(self._clients, epochs)

    def open_transactions(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[OpenTransaction, ...]]:
        """Return the open transactions of the partitions that have any."""
        return transaction_calls.open_transactions(self._clients, partitions)

    def active_producers(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """Return the producers that leaders remember, of the partitions that have any."""
        return transaction_calls.active_producers(self._clients, partitions)

    def transactional_topics(self) -> tuple[frozenset[str], ...] | None:
        """Return the sets of topics that one transaction was seen to write together."""
        return transaction_log.written_together(self._clients)

    def acls(self) -> frozenset[Acl]:
        """Return the ACLs on topics, groups and transactional ids."""
        return acl_calls.describe(self._clients)

    def create_acls(self, acls: Collection[Acl]) -> None:
        """Add ACLs, and wait until they are in force."""
        acl_calls.create(self._clients, acls)

    def delete_acls(self, acls: Collection[Acl]) -> None:
        """Remove ACLs, and wait until they are gone."""
        acl_calls.delete(self._clients, acls)

    def quotas(self) -> dict[QuotaEntity, dict[str, float]]:
        """Return the client quotas by what they limit."""
        return users.quotas(self._clients)

    def scram_users(self) -> frozenset[str]:
        """Return the users with SCRAM credentials."""
        return users.scram_users(self._clients)

    def no_fence_reason(self) -> str:
        """Say why srm cannot change ACLs here; empty where it can."""
        return acl_calls.unavailable_reason(self._clients)

    def write_denials(self, topics: Collection[str]) -> frozenset[str]:
        """Return those of the topics to which everybody is denied to write."""
        return acl_calls.write_denials(self._clients, topics)

    def deny_writes(self, topics: Collection[str]) -> None:
        """Deny everybody to write to topics."""
        acl_calls.deny_writes(self._clients, topics)

    def allow_writes(self, topics: Collection[str]) -> None:
        """Remove what :meth:`deny_writes` has set."""
        acl_calls.allow_writes(self._clients, topics)

    def groups(self, names: Collection[str] | None = None) -> dict[str, GroupDescription]:
        """Describe all groups, or the named ones; an absent group is ``dead``."""
        return group_descriptions.describe(self._clients, names)

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group; an absent group has none."""
        results, errors = self.commits_of([group])
        if errors:
            raise errors[group]
        return results[group]

    def commits_of(self, groups: Collection[str]) -> ByGroup[dict[TopicPartition, int]]:
        """Return the committed offsets of groups, and why others cannot be read."""
        return group_calls.committed_offsets(self._clients, groups)

    def pending_commits(
        self, groups: Collection[str], also: Collection[TopicPartition] = ()
    ) -> ByGroup[frozenset[TopicPartition]]:
        """Return the partitions for which a transaction that commits offsets is undecided."""
        return group_calls.pending(self._clients, groups, also)

    def remove_static_members(self, group: str, instance_ids: Collection[str]) -> None:
        """Remove static members from a group; those that are gone already do not matter."""
        group_calls.remove_static(self._clients, group, instance_ids)

    def remove_members(self, group: str, goes: Callable[[str], bool]) -> None:
        """Remove the members whose client id is chosen; those that live join again."""
        group_calls.remove_members(self._clients, group, goes)

    def commit_idle(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Write offsets of a group without members.

        Raises:
            GroupActiveError: the group has members.
        """
        group_calls.commit_idle(self._clients, group, offsets)

    def share_groups(self) -> frozenset[str]:
        """Return the names of all share groups."""
        return group_calls.share_groups(self._clients)

    def share_lags(self, groups: Collection[str]) -> ByGroup[dict[TopicPartition, int]]:
        """Return the lags of share groups: offsets that are not acknowledged."""
        return group_calls.share_lags(self._clients, groups)

    def share_resets(self, groups: Collection[str]) -> dict[str, str]:
        """Return where share groups start in partitions without a start offset."""
        return group_calls.share_resets(self._clients, groups)

    def set_share_starts(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set start offsets of a share group without members; an absent one is created.

        Raises:
            GroupActiveError: the group has members.
        """
        group_calls.set_share_starts(self._clients, group, offsets)

    def delete_groups(self, groups: Collection[str]) -> None:
        """Delete groups without members; absent ones do not matter.

        Raises:
            GroupActiveError: one has members; the others are deleted.
        """
        group_calls.delete(self._clients, groups)

    def read_as_member(
        self, group: str, partitions: Collection[TopicPartition], limit_s: float
    ) -> dict[TopicPartition, ComparedRecord | None]:
        """Join a group and read the first record of each partition from its committed offset."""
        return member_calls.read_first(self._clients, group, partitions, limit_s)

    def compacted_topic(self, topic: str, partition: int = 0) -> CompactedTopic:
        """Give access to one partition of a compacted topic."""
        if self._tables is not None:
            return self._tables.table(topic, partition)
        return KafkaCompactedTopic(self._clients, topic, partition)

    def control_writer(self, transactional_id: str) -> KafkaControlWriter:
        """Open the writer of control records; every older one of this id is shut out."""
        return KafkaControlWriter(self._clients, transactional_id)
