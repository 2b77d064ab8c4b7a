"""The resolved configuration, which :func:`srm.config.loader.load_config` builds of one file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from srm.config.keys.report_key import ReportKey
from srm.config.secrets import ClientProperties, Secret
from srm.config.service import ServiceSettings
from srm.domain.moves.routing import ROUTING_ALONE, FenceKind, RedirectKind
from srm.domain.names.flow_topics import FlowTopics, RecordedCopies
from srm.domain.names.policy import SHADOWS, NameFilter, ReplicationPolicy
from srm.domain.names.record_headers import RecordSettings
from srm.domain.names.topics import Flow
from srm.errors import ConfigError
from srm.logs import LogFormat

ClientKind = Literal["admin", "consumer", "producer"]
IsolationLevel = Literal["read_committed", "read_uncommitted"]


@dataclass(frozen=True, slots=True)
class RedirectSettings:
    """Redirectors for the clients of a move in the flow's direction, and their addresses.

    ``kinds`` in their order. Timeouts cover all attempts of one call. ``addresses`` are the
    bootstrap servers of both clusters by alias.
    """

    kinds: tuple[RedirectKind, ...] = ROUTING_ALONE
    webhook_url: Secret = field(default_factory=Secret)
    webhook_secret: Secret = field(default_factory=Secret)
    webhook_timeout: timedelta = timedelta(seconds=30)
    command: tuple[str, ...] = ()
    command_timeout: timedelta = timedelta(seconds=60)
    fence: FenceKind = "none"
    addresses: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """Everything one replication flow needs to know; the lists are regexes, full match.

    ``back`` is the policy of the opposite flow, ``recorded`` are the copies that it does not show.
    ``both_enabled``: whether this flow and the opposite one are enabled. If both keep names, too,
    ``back_topics`` are the lists of the opposite flow.
    ``joined``: sources of other flows that copy into the same names of the target.
    """

    flow: Flow
    enabled: bool
    policy: ReplicationPolicy
    topics: tuple[str, ...]
    topics_exclude: tuple[str, ...]
    groups: tuple[str, ...]
    groups_exclude: tuple[str, ...]
    config_properties_exclude: tuple[str, ...]
    tasks_max: int
    replication_factor: int
    offset_syncs_replication_factor: int
    checkpoints_replication_factor: int
    heartbeats_replication_factor: int
    internal_replication_factor: int
    refresh_topics_interval: timedelta
    sync_topic_configs_enabled: bool
    sync_topic_configs_interval: timedelta
    emit_checkpoints_enabled: bool
    emit_checkpoints_interval: timedelta
    sync_group_offsets_enabled: bool
    sync_group_offsets_interval: timedelta | None
    refresh_groups_interval: timedelta | None
    emit_heartbeats_enabled: bool
    emit_heartbeats_interval: timedelta
    heartbeats_replication_enabled: bool
    emit_offset_syncs_enabled: bool
    offset_syncs_location: Literal["source", "target"]
    reverse_checkpointing_enabled: bool
    reverse_checkpointed_topics: tuple[str, ...]
    checkpoints_engine: Literal["task", "spark"]
    proof_budget: int
    drill_schedule: str | None
    metrics_interval: timedelta
    metrics_windows_continuous: bool
    data_loss_policy: Literal["stop", "continue"]
    max_bytes_per_second: int | None
    merge_bytes: int
    linger_ms: int
    isolation_level: IsolationLevel
    records: RecordSettings
    sync_topic_acls_enabled: bool = True
    sync_topic_acls_interval: timedelta = timedelta(seconds=60)
    sync_acls_include: tuple[str, ...] = ()
    errors_tolerance: Literal["none", "all"] = "none"
    admin_timeout_ms: int = 30_000
    use_defaults_from: Literal["source", "target"] = "target"
    failover_approval: Literal["never", "unplanned", "always"] = "unplanned"
    failover_alert_after: timedelta = timedelta(seconds=60)
    rpo: timedelta | None = None
    failover_notifier: str = ""
    failover_notifier_arguments: str = "{}"
    failover_dry_run_schedule: str | None = None
    redirect: RedirectSettings = RedirectSettings()
    topic_filter: type[NameFilter] = NameFilter
    group_filter: type[NameFilter] = NameFilter
    config_property_filter: type[NameFilter] = NameFilter
    back: ReplicationPolicy | None = None
    recorded: RecordedCopies = field(default_factory=RecordedCopies)
    both_enabled: bool = False
    back_topics: NameFilter = field(default_factory=NameFilter)
    joined: frozenset[str] = frozenset()

    @property
    def group_names(self) -> NameFilter:
        """The filter of the flow's groups, which never selects groups of drills."""
        return self.group_filter(self.groups, (*self.groups_exclude, SHADOWS))

    @property
    def names(self) -> FlowTopics:
        """The names of the flow's topics; a loop builds them once."""
        listed = self.topic_filter(self.topics, self.topics_exclude)
        return FlowTopics(
            self.flow,
            self.policy,
            listed,
            self.heartbeats_replication_enabled,
            self.back,
            self.recorded,
            self.back_topics if self.both_ways else NameFilter(),
        )

    @property
    def both_ways(self) -> bool:
        """True if this flow and the opposite one are enabled and keep names."""
        names = FlowTopics(self.flow, self.policy, back=self.back)
        return self.both_enabled and names.keeps_name("topic") and names.replica("topic") == "topic"

    def joins(self, topic: str) -> bool:
        """Return True if flows from other clusters may copy into the topic's copy."""
        return bool(self.joined) and FlowTopics(self.flow, self.policy).keeps_name(topic)

    def shares(self, topic: str) -> bool:
        """Return True if others write to a topic's copy, too: producers there, or other flows."""
        if self.joins(topic) or not self.both_enabled:
            return self.joins(topic)
        names = FlowTopics(self.flow, self.policy, back=self.back)
        return names.keeps_name(topic) and names.replica(topic) == topic


@dataclass(frozen=True, slots=True)
class ClusterClients:
    """librdkafka properties for each kind of client of one cluster."""

    admin: ClientProperties
    consumer: ClientProperties
    producer: ClientProperties

    @classmethod
    def alike(cls, properties: Mapping[str, str]) -> ClusterClients:
        """Give all kinds the same properties."""
        same = ClientProperties(properties)
        return cls(same, same, same)


@dataclass(frozen=True)
class Config:
    """A whole properties file, resolved.

    ``clients`` maps (alias, kind) to librdkafka properties, ``bootstrap.servers`` included.
    ``spark`` are Spark's own settings by their names, ``stack`` those of the embedded stack.
    ``warnings`` are keys of MM2 that were understood but have no meaning here.
    ``flow_clients`` has the clients that a flow's own lines (``A->B.consumer.`` ...) change.
    service, ``log_format`` is how processes log; ``sha256`` identifies what the file says, see
    :func:`srm.config.loader.settings_sha256`.
    """

    path: str
    clusters: tuple[str, ...]
    flow_configs: Mapping[Flow, FlowConfig]
    clients: Mapping[tuple[str, ClientKind], ClientProperties]
    stack: Mapping[str, str] = field(default_factory=dict, repr=False)
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    warnings: tuple[str, ...] = ()
    flow_clients: Mapping[tuple[Flow, str, ClientKind], ClientProperties] = field(
        default_factory=dict
    )
    report_key: ReportKey = field(default_factory=ReportKey)
    service: ServiceSettings = field(default_factory=ServiceSettings)
    sha256: str = ""
    log_format: LogFormat = "text"

    @property
    def flows(self) -> tuple[Flow, ...]:
        """The enabled flows, in a stable order."""
        return tuple(sorted(f for f, c in self.flow_configs.items() if c.enabled))

    def flow(self, flow: Flow) -> FlowConfig:
        """Return the settings of one flow, enabled or not."""
        try:
            return self.flow_configs[flow]
        except KeyError:
            raise ConfigError(
                f"flow {flow} is unknown: {self.path} lists the clusters {', '.join(self.clusters)}"
            ) from None

    def client(self, alias: str, kind: ClientKind) -> dict[str, str]:
        """Return the librdkafka properties for one kind of client of a cluster, with secrets."""
        try:
            return dict(self.clients[alias, kind])
        except KeyError:
            raise ConfigError(
                f"cluster {alias!r} is unknown: {self.path} lists {', '.join(self.clusters)}"
            ) from None

    def flow_client(self, flow: Flow, alias: str, kind: ClientKind) -> dict[str, str]:
        """Return the properties for a kind of client on one side of a flow, with its own lines."""
        return dict(self.flow_clients.get((flow, alias, kind)) or self.client(alias, kind))

    def cluster_clients(self, alias: str, flow: Flow | None = None) -> ClusterClients:
        """Return the properties for all clients of a cluster, those of a flow if it is given."""

        def properties(kind: ClientKind) -> ClientProperties:
            if flow is None:
                return ClientProperties(self.client(alias, kind))
            return ClientProperties(self.flow_client(flow, alias, kind))

        return ClusterClients(properties("admin"), properties("consumer"), properties("producer"))
