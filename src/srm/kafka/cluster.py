"""A real Kafka cluster behind the engine's port."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Concatenate, ParamSpec, Self, TypeVar

from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import CompactedTopic
from srm.kafka.admin import acls as acl_calls
from srm.kafka.admin import cluster_facts, group_descriptions
from srm.kafka.admin import groups as group_calls
from srm.kafka.admin import offsets as offset_calls
from srm.kafka.admin import topics as topic_calls
from srm.kafka.admin import transactions as transaction_calls
from srm.kafka.admin.clients import DEFAULT_TIMEOUT_S, Clients
from srm.kafka.state.writers import KafkaControlWriter
from srm.kafka.tables import single_records
from srm.kafka.tables.compacted import KafkaCompactedTopic, LiveTables, Sink

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _with_clients(
    call: Callable[Concatenate[Clients, _P], _T],
) -> Callable[Concatenate[KafkaCluster, _P], _T]:
    """Make a method of a call that takes the clients of a cluster first."""

    def method(self: KafkaCluster, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        return call(self._clients, *arguments, **named)

    return method


class KafkaCluster:
    """One Kafka cluster (implements :class:`srm.engine.cluster_ports.Cluster`).

    The constructor does no I/O. Each call ends within ``timeout_s`` or raises UnavailableError;
    what a broker answers with "try again" is tried again until then. Threads may share it.

    Args:
        admin_props, consumer_props, producer_props: librdkafka's, ``bootstrap.servers`` included.
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

    def __exit__(self, *_: object) -> None:
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

    def cluster_id(self) -> str:
        """Kafka's own id of the cluster."""
        if self._id is None:
            self._id = cluster_facts.cluster_id(self._clients)
        return self._id

    facts = _with_clients(cluster_facts.read_facts)
    quotas = _with_clients(cluster_facts.quotas)
    scram_users = _with_clients(cluster_facts.scram_users)

    topics = _with_clients(topic_calls.describe)
    partition_counts = _with_clients(topic_calls.names)
    topic_configs = _with_clients(topic_calls.overrides)
    topic_settings = _with_clients(topic_calls.settings)
    create_topics = _with_clients(topic_calls.create)
    creation_problem = _with_clients(topic_calls.creation_problem)
    create_partitions = _with_clients(topic_calls.grow)
    alter_topic_configs = _with_clients(topic_calls.alter)

    log_starts = _with_clients(offset_calls.log_starts)
    log_ends = _with_clients(offset_calls.log_ends)
    high_watermarks = _with_clients(offset_calls.high_watermarks)
    newest_times = _with_clients(offset_calls.newest_times)
    offsets_at = _with_clients(offset_calls.offsets_at)
    first_records = _with_clients(single_records.first_records)
    epoch_ends = _with_clients(offset_calls.epoch_ends)

    open_transactions = _with_clients(transaction_calls.open_transactions)
    active_producers = _with_clients(transaction_calls.active_producers)
    transactional_topics = _with_clients(transaction_calls.written_together)

    topic_rights = _with_clients(acl_calls.topic_rights)
    acls = _with_clients(acl_calls.describe)
    create_acls = _with_clients(acl_calls.create)
    delete_acls = _with_clients(acl_calls.delete)
    no_fence_reason = _with_clients(acl_calls.unavailable_reason)
    write_denials = _with_clients(acl_calls.write_denials)
    deny_writes = _with_clients(acl_calls.deny_writes)
    allow_writes = _with_clients(acl_calls.allow_writes)

    groups = _with_clients(group_descriptions.describe)
    commits_of = _with_clients(group_calls.committed_offsets)
    pending_commits = _with_clients(group_calls.pending)
    remove_static_members = _with_clients(group_calls.remove_static)
    remove_members = _with_clients(group_calls.remove_members)
    commit_idle = _with_clients(group_calls.commit_idle)
    has_share_groups = _with_clients(group_calls.has_share_groups)
    share_groups = _with_clients(group_calls.share_groups)
    share_lags = _with_clients(group_calls.share_lags)
    share_resets = _with_clients(group_calls.share_resets)
    set_share_starts = _with_clients(group_calls.set_share_starts)
    delete_groups = _with_clients(group_calls.delete)
    read_as_member = _with_clients(single_records.read_first)
    control_writer = _with_clients(KafkaControlWriter)

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group; an absent group has none."""
        results, errors = self.commits_of([group])
        if errors:
            raise errors[group]
        return results[group]

    def follow(self, topic: str, sink: Sink) -> None:
        """Read a compacted topic of one partition into a sink from now on."""
        if self._tables is None:
            raise RuntimeError(f"{self.alias} was not opened to follow topics")
        self._tables.follow(topic, sink)

    def compacted_topic(self, topic: str, partition: int = 0) -> CompactedTopic:
        """Give access to one partition of a compacted topic."""
        if self._tables is not None:
            return self._tables.table(topic, partition)
        return KafkaCompactedTopic(self._clients, topic, partition)
