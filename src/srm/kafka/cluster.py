"""A real Kafka cluster behind the engine's port."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Self

from srm.config.model import ClusterClients
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import CompactedTopic
from srm.errors import ConfigError
from srm.kafka.admin import acls as acl_calls
from srm.kafka.admin import cluster_facts
from srm.kafka.admin import groups as group_calls
from srm.kafka.admin import offsets as offset_calls
from srm.kafka.admin import topics as topic_calls
from srm.kafka.admin import transactions as transaction_calls
from srm.kafka.admin.clients import DEFAULT_TIMEOUT_S, Clients
from srm.kafka.state.writers import KafkaControlWriter
from srm.kafka.tables import single_records
from srm.kafka.tables.compacted import KafkaCompactedTopic, LiveTables, Sink


class KafkaCluster(Clients):
    """One Kafka cluster (implements :class:`srm.engine.cluster_ports.Cluster`).

    The constructor does no I/O. Each call ends within ``timeout_s`` or raises UnavailableError;
    what a broker answers with "try again" is tried again until then. Threads may share it.

    ``recheck_s``: as :class:`Clients`. ``follow``: keep the compacted topics that are read in
    memory, seconds fresh. ``fresh``: follow only what is read, each time up to its end at the call.
    ``kept``: follow these topics alone, fresh.
    """

    def __init__(
        self,
        alias: str,
        props: ClusterClients,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        *,
        recheck_s: float = math.inf,
        follow: bool = False,
        fresh: bool = False,
        kept: Collection[str] = (),
    ) -> None:
        super().__init__(alias, props, timeout_s, recheck_s)
        is_fresh = fresh or bool(kept)
        self._tables = LiveTables(self, fresh=is_fresh) if follow or kept else None
        self._kept = frozenset(kept)
        for topic in kept:
            self.follow(topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._tables is not None:
            self._tables.close()
        super().close()

    def cluster_id(self) -> str:
        return self.known_id or cluster_facts.cluster_id(self)

    facts = cluster_facts.read_facts
    broker_configs = cluster_facts.broker_configs
    quotas = cluster_facts.quotas
    scram_users = cluster_facts.scram_users

    topics = topic_calls.describe
    partition_counts = topic_calls.names
    topic_settings = topic_calls.settings
    create_topics = topic_calls.create
    creation_problems = topic_calls.creation_problems
    change_problem = topic_calls.change_problem
    create_partitions = topic_calls.grow
    alter_topic_configs = topic_calls.alter

    log_starts = offset_calls.log_starts
    log_ends = offset_calls.log_ends
    high_watermarks = offset_calls.high_watermarks
    newest_times = offset_calls.newest_times
    offsets_at = offset_calls.offsets_at
    first_records = single_records.first_records
    epoch_ends = offset_calls.epoch_ends

    open_transactions = transaction_calls.open_transactions
    active_producers = transaction_calls.active_producers
    transactional_topics = transaction_calls.written_together

    topic_rights = acl_calls.topic_rights
    acls = acl_calls.describe
    create_acls = acl_calls.create
    delete_acls = acl_calls.delete
    no_fence_reason = acl_calls.unavailable_reason
    write_denials = acl_calls.write_denials
    deny_writes = acl_calls.deny_writes
    allow_writes = acl_calls.allow_writes

    groups = group_calls.describe
    commits_of = group_calls.committed_offsets
    pending_commits = group_calls.pending
    remove_static_members = group_calls.remove_static
    remove_members = group_calls.remove_members
    commit_idle = group_calls.commit_idle
    group_kinds = group_calls.group_kinds
    share_groups = group_calls.share_groups
    share_lags = group_calls.share_lags
    share_resets = group_calls.share_resets
    set_share_starts = group_calls.set_share_starts
    delete_groups = group_calls.delete
    read_as_member = single_records.read_first

    def control_writer(self, transactional_id: str) -> KafkaControlWriter:
        return KafkaControlWriter(self, transactional_id)

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        results, errors = self.commits_of([group])
        if errors:
            raise errors[group]
        return results[group]

    def follow(self, topic: str, sink: Sink | None = None, partition: int = 0) -> None:
        if self._tables is None:
            raise RuntimeError(f"{self.alias} was not opened to follow topics")
        self._tables.follow(topic, sink, partition)

    def compacted_topic(self, topic: str, partition: int = 0) -> CompactedTopic:
        if self._tables is not None and (not self._kept or topic in self._kept):
            return self._tables.table(topic, partition)
        return KafkaCompactedTopic(self, topic, partition)


def same_clusters(clusters: Collection[KafkaCluster]) -> Iterator[ConfigError]:
    """Yield an error for each id that several clusters have, of those that have answered."""
    by_id: dict[str, list[KafkaCluster]] = {}
    for cluster in sorted(clusters, key=lambda cluster: cluster.alias):
        if cluster.known_id is not None:
            by_id.setdefault(cluster.known_id, []).append(cluster)
    for cluster_id, same in by_id.items():
        if len({cluster.alias for cluster in same}) > 1:
            names = " and ".join(cluster.alias for cluster in same)
            keys = " or ".join(
                f"{cluster.alias}.bootstrap.servers = {cluster.props.admin['bootstrap.servers']}"
                for cluster in same
            )
            yield ConfigError(f"{names} are one cluster, {cluster_id}", f"correct {keys}")
