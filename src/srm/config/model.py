"""The resolved configuration, which :func:`srm.config.loader.load_config` builds of one file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from srm.config.keys import CLASS_KEYS, FLOW_KEYS
from srm.config.values import HIDDEN, ClientProperties, Secret, is_secret
from srm.domain.moves.routing import ROUTING_ALONE, FenceKind, RedirectKind
from srm.domain.names import internal_topics
from srm.domain.names.flow_topics import FlowTopics, RecordedCopies
from srm.domain.names.policy import SHADOWS, NameFilter, ReplicationPolicy
from srm.domain.names.record_headers import ClusterIds, RecordSettings, Transform
from srm.domain.names.topics import Flow
from srm.domain.text.documents import Document
from srm.errors import ConfigError, UsageError
from srm.files import user_path
from srm.logs import LogFormat

if TYPE_CHECKING:
    from srm.domain.moves.revisions import PublicKey, SigningKey

_LOCATION: Final = "report.signing.key.location"


@dataclass(frozen=True, slots=True)
class ReportKey:
    """File of the key, relative to the folder of the properties file, and its password."""

    file: Path | None = None
    password: str | None = field(default=None, repr=False)

    def read(self) -> SigningKey | None:
        """Read the key; None where none is named."""
        if self.file is None:
            return None
        from srm.domain.moves.revisions import SigningKey  # noqa: PLC0415 -- see above

        with _reading(f"{_LOCATION}: {self.file}", ConfigError):
            return SigningKey.read(self.file.read_bytes(), self.password)


def read_public_key(file: Path) -> PublicKey:
    from srm.domain.moves.revisions import PublicKey  # noqa: PLC0415 -- see above

    with _reading(f"public key {file}", UsageError):
        return PublicKey.read(file.read_bytes())


@contextmanager
def _reading(what: str, kind: type[UsageError]) -> Iterator[None]:
    try:
        yield
    except (OSError, UsageError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise kind(f"{what}: {reason}") from None


AuthKind = Literal["none", "basic", "bearer", "mtls"]


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Access to the service, and what it shows of itself (:mod:`srm.config.keys`)."""

    auth: AuthKind = "none"
    insecure: bool = False
    allowed_hosts: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    users_location: Path | None = None
    oidc_issuer: str | None = None
    oidc_audience: str | None = None
    oidc_user_claim: str = "preferred_username"
    oidc_roles_claim: str = "roles"
    oidc_leeway: timedelta = timedelta(seconds=30)
    oidc_ca_location: Path | None = None
    certificate_location: Path | None = None
    key_location: Path | None = None
    key_password: Secret = field(default_factory=Secret, repr=False)
    ca_location: Path | None = None


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """Discovery and queries between services; see :mod:`srm.config.keys`."""

    advertise: bool = False
    protocol: Literal["http", "https"] | None = None
    host: str | None = None
    port: int | None = None
    root_path: str | None = None
    replication_factor: int = -1
    enabled: bool = False
    hosts: tuple[str, ...] = ()
    timeout: timedelta = timedelta(seconds=3)
    username: str = ""
    password: Secret = field(default_factory=Secret, repr=False)
    ca_location: Path | None = None
    certificate_location: Path | None = None
    key_location: Path | None = None
    key_password: Secret = field(default_factory=Secret, repr=False)


_PARTS: Final[Mapping[str, type[Any]]] = {"access": AccessSettings, "remote": RemoteSettings}


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Address and watched targets of the service; see :mod:`srm.config.keys`."""

    host: str = "127.0.0.1"
    port: int = 6670
    root_path: str = ""
    targets: tuple[str, ...] = ()
    refresh: timedelta = timedelta(seconds=5)
    prometheus_topics: bool = True
    prometheus_groups: bool = True
    airflow_url: str = ""
    access: AccessSettings = field(default_factory=AccessSettings)
    remote: RemoteSettings = field(default_factory=RemoteSettings)

    @classmethod
    def of(cls, values: Mapping[str, Any], folder: Path) -> Self:
        """Build settings from values by attribute or ``part.attribute``, and files of a folder."""
        own = {name: value for name, value in values.items() if "." not in name}
        for part, made in _PARTS.items():
            own[part] = made(
                **{
                    attribute: _parse(attribute, value, folder)
                    for name, value in values.items()
                    for head, _, attribute in [name.partition(".")]
                    if head == part
                }
            )
        return cls(**own)


def _parse(attribute: str, value: Any, folder: Path) -> Any:
    if attribute.endswith("password"):
        return Secret(value)
    if attribute.endswith("ca_location") and value:
        parts = (str(folder / user_path(part.strip())) for part in value.split(","))
        return Path(",".join(parts))
    if attribute.endswith("_location"):
        return folder / user_path(value) if value else None
    return value


ClientKind = Literal["admin", "consumer", "producer"]
CLIENT_KINDS: Final[tuple[ClientKind, ...]] = ("admin", "consumer", "producer")
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
    """Settings of one flow; the lists are regexes, full match.

    ``back`` is the policy of the opposite flow, ``recorded`` are the copies that it does not show.
    ``both_enabled``: whether this flow and the opposite one are enabled. If both keep names, too,
    ``back_topics`` are the lists of the opposite flow.
    ``joined``: sources of other flows that copy into the same names of the target.
    ``aliases``: all clusters of the file.
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
    forget_groups_after: timedelta
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
    mm2_offsets_topic: str = ""
    mm2_group: str = ""
    failover_approval: Literal["never", "unplanned", "always"] = "unplanned"
    failover_alert_after: timedelta = timedelta(seconds=60)
    rpo: timedelta | None = None
    failover_notifier: str = ""
    failover_notifier_arguments: str = "{}"
    failover_dry_run_schedule: str | None = None
    create_missing_topics: bool = True
    redirect: RedirectSettings = RedirectSettings()
    topic_filter: type[NameFilter] = NameFilter
    group_filter: type[NameFilter] = NameFilter
    config_property_filter: type[NameFilter] = NameFilter
    back: ReplicationPolicy | None = None
    recorded: RecordedCopies = field(default_factory=RecordedCopies)
    both_enabled: bool = False
    back_topics: NameFilter = field(default_factory=NameFilter)
    joined: frozenset[str] = frozenset()
    aliases: frozenset[str] = frozenset()

    @property
    def checkpoints_topic(self) -> str:
        return internal_topics.checkpoints(self.flow.source, self.policy.separator)

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
            self.aliases,
        )

    @property
    def both_ways(self) -> bool:
        """True if this flow and the opposite one are enabled and keep names."""
        return self._is_both_ways("topic")

    def joins(self, topic: str) -> bool:
        """Return True if flows from other clusters may copy into the topic's copy."""
        return bool(self.joined) and FlowTopics(self.flow, self.policy).keeps_name(topic)

    def shares(self, topic: str) -> bool:
        """Return True if others write to a topic's copy, too: producers there, or other flows."""
        return self.joins(topic) or self._is_both_ways(topic)

    def transform(self, clusters: ClusterIds, topic: str, target_topic: str) -> Transform:
        """Return what the flow changes in a topic's records; ``clusters``: ids of both sides."""
        return Transform(self.records, clusters, self.flow.source, topic, target_topic)

    def _is_both_ways(self, topic: str) -> bool:
        names = FlowTopics(self.flow, self.policy, back=self.back)
        return self.both_enabled and names.keeps_name(topic) and names.replica(topic) == topic


@dataclass(frozen=True, slots=True)
class ClusterClients:
    """librdkafka properties for each kind of client of one cluster."""

    admin: ClientProperties
    consumer: ClientProperties
    producer: ClientProperties

    @classmethod
    def alike(cls, properties: Mapping[str, str]) -> ClusterClients:
        same = ClientProperties(properties)
        return cls(same, same, same)


@dataclass(frozen=True)
class Config:
    """A whole properties file, resolved.

    ``clients`` has librdkafka properties, ``bootstrap.servers`` included, by alias, kind and flow.
    A flow is there where its own lines (``A->B.consumer.`` ...) change a client; None is any flow.
    ``spark`` are Spark's own settings by their names, ``stack`` those of the embedded stack.
    ``warnings`` are keys of MM2 that were understood but have no meaning here.
    ``sha256`` identifies what the file says, see :func:`srm.config.loader.settings_sha256`.
    """

    path: str
    clusters: tuple[str, ...]
    flow_configs: Mapping[Flow, FlowConfig]
    clients: Mapping[tuple[str, ClientKind, Flow | None], ClientProperties]
    stack: Mapping[str, str] = field(default_factory=dict, repr=False)
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    warnings: tuple[str, ...] = ()
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

    def client(self, alias: str, kind: ClientKind, flow: Flow | None = None) -> dict[str, str]:
        """Return the librdkafka properties for a kind of client of a cluster, with secrets.

        With a flow those of its client, which its own lines may change.
        """
        try:
            return dict(self.clients.get((alias, kind, flow)) or self.clients[alias, kind, None])
        except KeyError:
            raise ConfigError(
                f"cluster {alias!r} is unknown: {self.path} lists {', '.join(self.clusters)}"
            ) from None

    def cluster_clients(self, alias: str, flow: Flow | None = None) -> ClusterClients:
        """Return the properties for all clients of a cluster, those of a flow if it is given."""
        found = {kind: ClientProperties(self.client(alias, kind, flow)) for kind in CLIENT_KINDS}
        return ClusterClients(**found)


OF_APPLICATION: Final = frozenset({"enabled", "tasks_max"})
"""Fields that wait for ``srm replicator restart``: Spark has a core for each slot."""
OF_RUN: Final = frozenset(
    {
        *("policy", "back", "both_enabled", "isolation_level", "records", "data_loss_policy"),
        *("errors_tolerance", "admin_timeout_ms"),
        *("offset_syncs_replication_factor", "heartbeats_replication_factor"),
        *("internal_replication_factor", "emit_offset_syncs_enabled", "offset_syncs_location"),
        *("refresh_topics_interval", "emit_heartbeats_enabled", "emit_heartbeats_interval"),
        *("metrics_interval", "metrics_windows_continuous"),
        *("max_bytes_per_second", "merge_bytes", "linger_ms"),
    }
)
"""Fields that slots, or threads of the driver, have from their start: the flow starts again."""
OF_MOVE: Final = frozenset(
    {
        *("policy", "topics", "topics_exclude", "topic_filter"),
        *("groups", "groups_exclude", "group_filter", "create_missing_topics"),
    }
)
"""Fields that each step of a move needs as its plan had them: names, and what is selected."""
_KEYS: Final = {
    "policy": "replication.policy.class",
    **{key.field.removesuffix("_class"): key.name for key in CLASS_KEYS},
    **{key.field: key.name for key in FLOW_KEYS},
}


@dataclass(frozen=True, slots=True)
class SettingsRecord(Document):
    """Settings in force, without secrets, and those that they have replaced at ``time_ms``."""

    KIND = "settings"
    in_force: dict[str, Any]
    before: dict[str, Any]
    time_ms: int


REDIRECT_SECRETS: Final = ("webhook_url", "webhook_secret", "command")
"""Some addresses are secrets themselves; a command may have some as arguments."""


def plain_settings(config: FlowConfig) -> dict[str, Any]:
    """Return the settings of a flow as JSON values by field, without secrets."""
    found: dict[str, Any] = {
        name: HIDDEN if is_secret(key_of(name)) else plain_value(value)
        for name, value in asdict(config).items()
        if name != "flow"
    }
    for name, policy in (("policy", config.policy), ("back", config.back)):
        found[name] = policy and f"{type(policy).__name__} {policy.separator}"
    found["redirect"] = {
        name: plain_value(value)
        for name, value in found["redirect"].items()
        if name not in REDIRECT_SECRETS
    }
    plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return plain


def settings_of_move(config: FlowConfig) -> dict[str, str]:
    """Return the settings that a move needs, as in a file."""
    found = {name: value for name, value in plain_settings(config).items() if name in OF_MOVE}
    return {n: ",".join(v) if isinstance(v, list) else str(v) for n, v in found.items()}


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the fields whose values differ, with both values."""
    both = {name: (before.get(name), after.get(name)) for name in sorted({*before, *after})}
    return {name: values for name, values in both.items() if values[0] != values[1]}


def key_of(field: str) -> str:
    return _KEYS.get(field, field.replace("_", "."))


def plain_value(value: object) -> object:
    """Return a setting as a JSON value, alike in all processes: a class is its name."""
    if isinstance(value, type):
        return f"{value.__module__}:{value.__qualname__}"
    if isinstance(value, frozenset):
        return sorted(value)
    return value.total_seconds() if isinstance(value, timedelta) else value
