"""A Kafka cluster in memory, good enough to run every use case of the engine.

The contract suite in tests/contract runs over this and the real one, so the two cannot drift
apart. Methods that the port does not have play the part of everybody else: producers, consumers,
retention, a network that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from srm.config.model import ClientKind
from srm.domain.names.internal_topics import CONSUMER_OFFSETS, partition_of
from srm.domain.names.rights import Acl, write_denial
from srm.domain.names.topics import ActiveProducer, OpenTransaction, TopicPartition
from srm.domain.verification.compared_record import ComparedRecord
from srm.engine.cluster_ports import (
    ByGroup,
    GroupDescription,
    GroupKind,
    Place,
    QuotaEntity,
    TopicDescription,
    TopicSetting,
    TopicSpec,
)
from srm.errors import (
    AuthorizationError,
    ConfigError,
    NotFoundError,
    SrmError,
    UnavailableError,
    UsageError,
)
from srm_lab.testing.fake_compacted import (
    FakeCompactedTopic,
    FakeControlWriter,
    FakePartition,
    FakeTopic,
    random_id,
    system_clock,
)
from srm_lab.testing.fake_groups import FakeGroups, FakeTransactions, by_group

OPERATIONS: Final = frozenset(
    {"Alter", "AlterConfigs", "Create", "Delete", "Describe", "DescribeConfigs", "Read", "Write"}
)


class FakeRights:
    """The rights of srm on topics: all that were not revoked.

    ``forbidden``: settings, with their values, that a policy of the brokers refuses.
    """

    def __init__(self) -> None:
        self._taken: set[tuple[str, str]] = set()
        self.forbidden: dict[str, str] = {}

    def take(self, operation: str, topic: str) -> None:
        """Revoke a right on a topic."""
        self._taken.add((operation, topic))

    def has(self, operation: str, topic: str) -> bool:
        """Return whether srm may perform an operation on a topic."""
        return (operation, topic) not in self._taken

    def of(self, topic: str) -> frozenset[str]:
        """Return what may be done with a topic; nothing of one that may not be described."""
        if not self.has("Describe", topic):
            return frozenset()
        return frozenset(one for one in OPERATIONS if self.has(one, topic))

    def refusal(self, spec: TopicSpec, brokers: int) -> SrmError | None:
        """Say why brokers would not create a topic, None where they would."""
        if not self.has("Create", spec.name):
            return AuthorizationError(f"creating topic {spec.name}", f"grant Create on {spec.name}")
        if spec.partitions < 1:
            return UsageError(f"creating topic {spec.name}: {spec.partitions} partitions")
        if spec.replication_factor > brokers:
            return ConfigError(
                f"creating topic {spec.name}: replication factor {spec.replication_factor} "
                f"is larger than the number of brokers, {brokers}"
            )
        return self.policy_violation(spec.name, spec.configs)

    def policy_violation(self, topic: str, changes: Mapping[str, str | None]) -> SrmError | None:
        """Say which setting of a request the policy of the brokers refuses, None if none."""
        wrong = [
            name for name, value in changes.items() if value and self.forbidden.get(name) == value
        ]
        text = f"topic {topic}: policy violation"
        return ConfigError(text, f"change {wrong[0]}") if wrong else None


KAFKA_DEFAULTS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
}


BROKER_DEFAULTS: Final[Mapping[str, str]] = {
    "group.consumer.max.session.timeout.ms": "60000",
    "group.consumer.max.size": "2147483647",
    "group.consumer.min.session.timeout.ms": "45000",
    "group.max.session.timeout.ms": "1800000",
    "group.max.size": "2147483647",
    "group.min.session.timeout.ms": "6000",
    "message.max.bytes": "1048588",
    "offsets.retention.minutes": "10080",
    "transaction.max.timeout.ms": "900000",
}


class FakeCluster:
    """One Kafka cluster in memory (implements :class:`srm.engine.cluster_ports.Cluster`).

    ``commits`` lists the (group, offsets) of all successful :meth:`commit_idle` calls; ``rights``
    are those of srm on topics. ``defaults`` are settings of topics that do not set them;
    ``resets`` are values of share.auto.offset.reset by group; ``kinds``: protocols of groups.
    ``broker_settings``: empty: srm may not see them.
    """

    def __init__(
        self, alias: str, brokers: int = 3, clock: Callable[[], int] = system_clock
    ) -> None:
        self.leaderless: set[TopicPartition] = set()
        self.commits: list[tuple[str, dict[TopicPartition, int]]] = []
        self.rights = FakeRights()
        self.resets: dict[str, str] = {}
        self.kinds: frozenset[GroupKind] = frozenset({"classic", "consumer", "streams", "share"})
        self.broker_settings = dict(BROKER_DEFAULTS)
        self._alias = alias
        self._brokers = brokers
        self._id = random_id()
        self._topics: dict[str, FakeTopic] = {}
        self._groups = FakeGroups(alias, self._log_commit)
        self._transactions = FakeTransactions()
        self._failure: SrmError | None = None
        self._clock = clock
        self._epochs: dict[str, int] = {}
        self._acls: set[Acl] = set()
        self.defaults = dict(KAFKA_DEFAULTS)
        self.client_quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.users: set[str] = set()
        self._no_fence = ""
        self._written: dict[tuple[str, TopicPartition], set[int]] = {}

    # The port.

    @property
    def alias(self) -> str:
        """Alias in the configuration."""
        return self._alias

    def cluster_id(self) -> str:
        """Kafka's own id of the cluster."""
        self._reach("describing the cluster")
        return self._id

    def partition_counts(self, topics: Collection[str] | None = None) -> dict[str, int]:
        """Count the partitions of all topics, or of those that exist of some."""
        known = {name: topic.partitions for name, topic in self.topics().items()}
        return known if topics is None else {one: known[one] for one in topics if one in known}

    def broker_configs(self) -> dict[str, str]:
        """Return what ``broker_settings`` says."""
        self._reach("reading broker settings")
        return dict(self.broker_settings)

    def topics(self) -> dict[str, TopicDescription]:
        """Describe all topics."""
        self._reach("describing topics")
        return {
            name: TopicDescription(
                name,
                topic.topic_id,
                len(topic.partitions),
                {p.partition: (1,) for p in self.leaderless if p.topic == name},
                topic.replicas,
            )
            for name, topic in self._topics.items()
            if self.rights.has("Describe", name)
        }

    def topic_settings(self, topics: Collection[str]) -> dict[str, dict[str, TopicSetting]]:
        """Return the values in effect of the topics; one that does not exist is left out."""
        self._reach("reading topic configs")
        defaults = {name: TopicSetting(value, "default") for name, value in self.defaults.items()}
        own = {name: self._topics[name].configs for name in topics if name in self._topics}
        return {
            topic: defaults | {name: TopicSetting(value) for name, value in found.items()}
            for topic, found in own.items()
        }

    def create_topics(self, specs: Collection[TopicSpec]) -> None:
        """Create topics; existing topics are not changed."""
        self._reach("creating topics")
        for spec in specs:
            if spec.name in self._topics:
                continue
            if refusal := self.rights.refusal(spec, self._brokers):
                raise refusal
            self.add_topic(spec.name, spec.partitions, dict(spec.configs))
            self._topics[spec.name].replicas = max(1, spec.replication_factor)

    def creation_problems(self, specs: Collection[TopicSpec]) -> dict[str, SrmError]:
        """Say why topics could not be created."""
        self._reach("creating topics")
        found = {spec.name: self.rights.refusal(spec, self._brokers) for spec in specs}
        return {name: error for name, error in found.items() if error is not None}

    def change_problem(self, topic: str, changes: Mapping[str, str | None]) -> SrmError | None:
        """Say why settings could not be changed."""
        self._reach("changing topic configs")
        return self.rights.policy_violation(topic, changes)

    def topic_rights(
        self,
        topics: Collection[str],
        client: ClientKind = "admin",  # noqa: ARG002 - all are one
    ) -> dict[str, frozenset[str]]:
        """Return what may be done with topics."""
        self._reach("checking rights")
        hidden = [name for name in topics if not self.rights.has("Describe", name)]
        return {name: self.rights.of(name) for name in topics if name in {*self._topics, *hidden}}

    def create_partitions(self, counts: Mapping[str, int]) -> None:
        """Grow topics; one that is as large already is left alone."""
        self._reach("growing topics")
        self._require(counts)
        for name, count in counts.items():
            partitions = self._topics[name].partitions
            partitions.extend(FakePartition() for _ in range(count - len(partitions)))

    def alter_topic_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> None:
        """Set topic configs incrementally; None deletes an override."""
        self._reach("changing topic configs")
        self._require([name for name, entries in changes.items() if entries])
        for name, entries in changes.items():
            if refusal := self.rights.policy_violation(name, entries):
                raise refusal
            for key, value in entries.items():
                if value is None:
                    self._topics[name].configs.pop(key, None)
                else:
                    self._topics[name].configs[key] = value

    def log_starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset each partition still holds; unknown ones are left out."""
        self._reach("listing offsets")
        self._require_leaders(partitions)
        found = {p: self._partition(p) for p in partitions}
        return {p: partition.start for p, partition in found.items() if partition}

    def log_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the last stable offset of each partition; unknown ones are left out."""
        ends = self.high_watermarks(partitions)
        return {p: self._transactions.stable_end(p, end) for p, end in ends.items()}

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each partition's log; unknown ones are left out."""
        self._reach("listing offsets")
        self._require_leaders(partitions)
        found = {p: self._partition(p) for p in partitions}
        return {p: partition.end for p, partition in found.items() if partition}

    def newest_times(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the largest timestamp of each partition that holds records."""
        self._reach("listing offsets")
        self._require_leaders(partitions)
        found = {p: self._partition(p) for p in partitions}
        return {
            p: max(time_ms for _, time_ms in partition.times)
            for p, partition in found.items()
            if partition and partition.times and partition.start < partition.end
        }

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return up to where each log holds a leader epoch, -1 if it does not."""
        self._reach("looking up leader epochs")
        found = {p: self._partition(p) for p in epochs}
        return {p: log.epoch_end(epochs[p]) for p, log in found.items() if log}

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offsets of the first records at or after a timestamp."""
        self._reach("listing offsets")
        found: dict[TopicPartition, int] = {}
        for p, time_ms in times.items():
            partition = self._partition(p)
            for first, produced_ms in partition.times if partition is not None else ():
                if produced_ms >= time_ms:
                    found[p] = first
                    break
        return found

    def first_records(
        self, places: Collection[Place], *, committed: bool = True
    ) -> dict[Place, ComparedRecord | None]:
        """Return the first record from each offset on, None where the log has none."""
        self._reach("reading single records")
        known = {partition for partition, _ in places}
        ends = self.high_watermarks(known)
        stable = self.log_ends(known) if committed else ends
        return {
            (p, at): self._existing(p).first_record(at, stable[p], committed=committed)
            for p, at in places
            if p in ends and 0 <= at <= ends[p]
        }

    def open_transactions(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[OpenTransaction, ...]]:
        """Return the open transactions of the partitions that have any."""
        self._reach("describing producers")
        return self._transactions.open(partitions)

    def active_producers(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """Return the producers that wrote into the partitions."""
        self._reach("describing producers")
        return self._transactions.active(partitions)

    def transactional_topics(self) -> tuple[frozenset[str], ...] | None:
        """Return the sets of topics that one transaction wrote together; None: may not be known."""
        self._reach("reading __transaction_state")
        return self._transactions.written_together()

    def acls(self) -> frozenset[Acl]:
        """Return the ACLs."""
        self._reach("reading ACLs")
        if self._no_fence:
            raise ConfigError(f"reading ACLs on cluster {self._alias}: {self._no_fence}")
        return frozenset(self._acls)

    def create_acls(self, acls: Collection[Acl]) -> None:
        """Add ACLs."""
        self._reach("adding ACLs")
        if self._no_fence:
            raise ConfigError(f"adding ACLs on cluster {self._alias}: {self._no_fence}")
        self._acls |= set(acls)

    def delete_acls(self, acls: Collection[Acl]) -> None:
        """Remove ACLs."""
        self._reach("removing ACLs")
        self._acls -= set(acls)

    def quotas(self) -> dict[QuotaEntity, dict[str, float]]:
        """Return the client quotas."""
        self._reach("reading quotas")
        return dict(self.client_quotas)

    def scram_users(self) -> frozenset[str]:
        """Return the users with SCRAM credentials."""
        self._reach("reading users")
        return frozenset(self.users)

    def no_fence_reason(self) -> str:
        """Say why ACLs cannot be changed."""
        self._reach("reading ACLs")
        return self._no_fence

    def write_denials(self, topics: Collection[str]) -> frozenset[str]:
        """Return those of the topics that are closed for writes."""
        self._reach("reading ACLs")
        return frozenset(topic for topic in topics if write_denial(topic) in self._acls)

    def deny_writes(self, topics: Collection[str]) -> None:
        """Close topics for writes."""
        self.create_acls([write_denial(topic) for topic in topics])

    def allow_writes(self, topics: Collection[str]) -> None:
        """Let everybody write to topics again."""
        self.delete_acls([write_denial(topic) for topic in topics])

    def groups(self, names: Collection[str] | None = None) -> dict[str, GroupDescription]:
        """Describe all groups, or the named ones; an absent group is ``dead``."""
        self._reach("describing groups")
        wanted = self._groups.names() if names is None else names
        return {name: self._groups.describe(name) for name in wanted}

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group; an absent group has none."""
        self._reach(f"reading offsets of group {group!r}")
        return self._groups.committed_offsets(group)

    def commits_of(self, groups: Collection[str]) -> ByGroup[dict[TopicPartition, int]]:
        """Return the committed offsets of groups, and why others cannot be read."""
        return by_group(groups, self.committed_offsets)

    def pending_commits(
        self, groups: Collection[str], also: Collection[TopicPartition] = ()
    ) -> ByGroup[frozenset[TopicPartition]]:
        """Return the partitions for which a transaction that commits offsets is undecided."""
        self._reach("reading offsets of groups")
        return by_group(groups, lambda group: self._groups.pending(group, also))

    def remove_static_members(self, group: str, instance_ids: Collection[str]) -> None:
        """Remove static members from a group."""
        self._reach(f"removing members of group {group!r}")
        self._groups.remove_static(group, instance_ids)

    def remove_members(self, group: str, ids: Collection[str]) -> None:
        """Remove members by their ids."""
        self._reach(f"removing members of group {group!r}")
        self._groups.remove(group, ids)

    def group_kinds(self) -> frozenset[GroupKind]:
        """Return what ``kinds`` says."""
        self._reach("looking for group protocols")
        return self.kinds

    def share_groups(self) -> frozenset[str]:
        """Return the names of all share groups."""
        self._reach("listing share groups")
        return self._groups.share_groups()

    def share_lags(self, groups: Collection[str]) -> ByGroup[dict[TopicPartition, int]]:
        """Return the lags of share groups."""
        self._reach("reading offsets of groups")
        return by_group(groups, self._groups.lags)

    def share_resets(self, groups: Collection[str]) -> dict[str, str]:
        """Return the broker's default for groups, or what ``resets`` says."""
        self._reach("describing settings of groups")
        return {group: self.resets.get(group, "latest") for group in groups}

    def set_share_starts(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set start offsets of a share group without members; an absent one is created.

        GroupActiveError: the group has members.
        """
        self.commit_idle(group, offsets)
        self._groups.share(group, {})

    def commit_idle(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Write offsets of a group without members.

        GroupActiveError: the group has members. NotFoundError: some partitions do not exist; the
        others were written.
        """
        if not offsets:
            return
        negative = sorted(str(p) for p, offset in offsets.items() if offset < 0)
        if negative:
            raise UsageError(f"group {group!r}: negative offset for {', '.join(negative)}")
        self._reach(f"writing offsets of group {group!r}")
        self._groups.require_idle(group)
        known = {p: offset for p, offset in offsets.items() if self._partition(p)}
        if known:
            self._groups.commit(group, known)
            self.commits.append((group, known))
        unknown = sorted(str(p) for p in offsets.keys() - known.keys())
        if unknown:
            raise NotFoundError(
                f"writing offsets of group {group!r}: unknown partitions: {', '.join(unknown)}"
            )

    def delete_groups(self, groups: Collection[str]) -> None:
        """Delete groups without members; absent ones do not matter.

        GroupActiveError: one has members; the others are deleted.
        """
        self._reach("deleting groups")
        self._groups.delete(groups)

    def read_as_member(
        self,
        group: str,
        partitions: Collection[TopicPartition],
        limit_s: float,  # noqa: ARG002 - the port's; nothing takes time here
        kind: GroupKind = "classic",
    ) -> dict[TopicPartition, ComparedRecord | None]:
        """Return the first record of each partition from the group's committed offset."""
        if kind == "consumer" and kind not in self.kinds:
            raise SrmError(f"joining group {group!r}: the protocol {kind} is not supported")
        offsets = self.committed_offsets(group)
        self._groups.require_idle(group)
        found = self.first_records([(p, offsets[p]) for p in partitions if p in offsets])
        return {p: record for (p, _), record in found.items()}

    def compacted_topic(self, topic: str, partition: int = 0) -> FakeCompactedTopic:
        """Give access to one partition of a compacted topic."""
        place = TopicPartition(topic, partition)

        def find(doing: str) -> FakePartition | None:
            self._reach(doing)
            return self._partition(place)

        configs = self._topics[topic].configs if topic in self._topics else {}
        stamped = configs.get("message.timestamp.type") == "LogAppendTime"
        limit = int(configs.get("max.message.bytes", self.defaults["max.message.bytes"]))
        return FakeCompactedTopic(str(place), find, self._clock, stamped=stamped, limit=limit)

    def control_writer(self, transactional_id: str) -> FakeControlWriter:
        """Open the writer of control records; every older one of this id is shut out."""
        self._reach(f"taking over {transactional_id}")
        name = f"{transactional_id} on cluster {self._alias}"
        return FakeControlWriter(name, self.compacted_topic, self._epochs, transactional_id)

    # Everybody else.

    def add_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        topic_id: str = "",
    ) -> str:
        """Create a topic, or create it again, under a new id if none is given; return the id."""
        logs = [FakePartition() for _ in range(partitions)]
        topic = FakeTopic(topic_id or random_id(), logs, dict(configs or {}))
        self._topics[name] = topic
        return topic.topic_id

    def delete_topic(self, name: str) -> None:
        """Delete a topic with everything in it, committed offsets included."""
        del self._topics[name]
        self._groups.forget_topic(name)

    def produce(
        self,
        topic: str,
        partition: int = 0,
        records: int = 1,
        *,
        producer_id: int | None = None,
        timestamp_ms: int = 0,
    ) -> int:
        """Let a producer append records, an idempotent one if it has an id; return the new end."""
        place = TopicPartition(topic, partition)
        found = self._existing(place)
        if write_denial(topic) in self._acls:
            raise AuthorizationError(f"writing to topic {topic} is denied on cluster {self._alias}")
        found.grow(records, timestamp_ms)
        if producer_id is not None:
            self._transactions.remember(place, producer_id, timestamp_ms)
        return found.end

    def produce_records(
        self, topic: str, partition: int, records: Collection[ComparedRecord]
    ) -> int:
        """Let a producer append records that are looked into; return the new end."""
        found = self._existing(TopicPartition(topic, partition))
        for record in records:
            found.contents[found.end] = record._replace(offset=found.end)
            found.grow(1, record.timestamp_ms)
        return found.end

    def readable(self, place: TopicPartition, start: int) -> list[int]:
        """Return the offsets of the committed records from an offset on, as consumers get them."""
        found = self._existing(place)
        end = self.log_ends([place])[place]
        passed = found.holes | found.aborted
        return [at for at in range(max(start, found.start), end) if at not in passed]

    def mark(self, topic: str, partition: int = 0, markers: int = 1) -> None:
        """Add markers to a log."""
        self._existing(TopicPartition(topic, partition)).mark(markers)

    def remove_record(self, topic: str, partition: int, offset: int) -> None:
        """Let compaction remove one record."""
        self._existing(TopicPartition(topic, partition)).holes.add(offset)

    def produce_in(
        self, transactional_id: str, topic: str, partition: int, records: int, *, age_ms: int = 0
    ) -> None:
        """Let a producer append records in a transaction, which this opens if it is not open."""
        place = TopicPartition(topic, partition)
        found = self._existing(place)
        self._transactions.add(transactional_id, place, found.end, age_ms)
        written = self._written.setdefault((transactional_id, place), set())
        written.update(range(found.end, found.end + records))
        found.end += records

    def commit_in(
        self, transactional_id: str, group: str, offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Let a transaction commit offsets of a group, undecided until it ends."""
        self._groups.commit_in(transactional_id, group, offsets)

    def end_transaction(self, transactional_id: str, *, commit: bool = True) -> None:
        """End a transaction: markers are written, and its offsets count or are dropped."""
        for place in self._transactions.end(transactional_id):
            written = self._written.pop((transactional_id, place))
            if not commit:
                self._existing(place).aborted |= written
            self._existing(place).mark()
        self._groups.decide(transactional_id, commit=commit)

    def hide_transactions(self) -> None:
        """Revoke the rights to read transactional ids and the log of transactions."""
        self._transactions.readable = False

    def take_authorizer_away(self, why: str = "the brokers have no authorizer") -> None:
        """Let no rule be set."""
        self._no_fence = why

    def trim(self, topic: str, partition: int, start: int) -> None:
        """Let retention delete what is before ``start``."""
        found = self._existing(TopicPartition(topic, partition))
        found.start = max(found.start, min(start, found.end))

    def compact(self, topic: str, partition: int = 0) -> None:
        """Let the log cleaner run: older records of a key are gone, the others stay in place."""
        self._existing(TopicPartition(topic, partition)).compact()

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Let a consumer of the group commit, as a member or before it left."""
        self._groups.commit(group, offsets)

    def join(
        self, group: str, member: str = "app", kind: GroupKind = "classic", instance_id: str = ""
    ) -> str:
        """Let a consumer join the group, as a static member if it has an instance id.

        Returns its member id.
        """
        return self._groups.join(group, member, kind, instance_id)

    def share(self, group: str, lags: Mapping[TopicPartition, int]) -> None:
        """Make a group a share group with lags."""
        self._groups.share(group, lags)

    def leave(self, group: str, member: str = "app") -> None:
        """Let a consumer leave the group."""
        self._groups.leave(group, member)

    def hide_group(self, group: str) -> None:
        """Revoke the right to describe a group."""
        self._groups.hide(group)

    def expire_group(self, group: str) -> None:
        """Forget a group and its offsets, as the broker does after offsets.retention.minutes."""
        self._groups.expire(group)

    def fail(self, error: SrmError | None = None) -> None:
        """Let every call fail from now on, by default as a cluster that is down."""
        self._failure = error or UnavailableError(f"cluster {self._alias} does not answer; retry")

    def recover(self) -> None:
        """End what :meth:`fail` began."""
        self._failure = None

    def _log_commit(self, group: str, key: bytes, value: bytes | None) -> None:
        if log := self._topics.get(CONSUMER_OFFSETS):
            number = partition_of(group, len(log.partitions))
            log.partitions[number].append(key, value, self._clock())

    def _reach(self, doing: str) -> None:
        if (failed := self._failure) is not None:
            raise type(failed)(f"{doing} on cluster {self._alias}: {failed.what}", failed.action)

    def _require_leaders(self, partitions: Collection[TopicPartition]) -> None:
        if found := sorted(self.leaderless.intersection(partitions)):
            raise UnavailableError(f"cluster {self._alias}: no leader yet for {found[0]}")

    def _require(self, names: Collection[str]) -> None:
        absent = sorted(name for name in names if name not in self._topics)
        if absent:
            raise NotFoundError(f"cluster {self._alias} has no topic {', '.join(absent)}")

    def _partition(self, place: TopicPartition) -> FakePartition | None:
        topic = self._topics.get(place.topic)
        if topic is None or place.partition >= len(topic.partitions):
            return None
        return topic.partitions[place.partition]

    def _existing(self, place: TopicPartition) -> FakePartition:
        partition = self._partition(place)
        if partition is None:
            raise NotFoundError(f"cluster {self._alias} has no partition {place}")
        return partition
