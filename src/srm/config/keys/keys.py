"""Every key of the properties file that is not a client setting, declared once.

A key's ``origin`` says whose it is: MirrorMaker 2's (``mm2``), Streams Replication Manager's
(``srm``), Kafka Connect's (``connect``) or our own (``ours``). A key with ``effect`` False is
understood and answered with a warning: it has no meaning here, and ``doc`` says why.
Client settings (``security.protocol``, ``consumer.fetch.min.bytes`` ...) are in
:mod:`srm.config.keys.client_keys`.
"""

from __future__ import annotations

from typing import Final

from srm.config.keys.config_key import ConfigKey, our_file_key, our_key
from srm.config.keys.ignored_keys import IGNORED_KEYS, IGNORED_PREFIXES
from srm.config.keys.move_keys import MOVE_KEYS
from srm.config.keys.service_keys import SERVICE_KEYS
from srm.domain.names.record_headers import PROVENANCE_HEADER, SOURCE_OFFSETS_HEADER

DEFAULT_POLICY: Final = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"

FILE_KEYS: Final = (
    ConfigKey("clusters", "list", None, "Aliases of all clusters, e.g. `P, B`.", scope="file"),
    our_file_key(
        "report.signing.key.location",
        "string",
        None,
        "File with the private key (Ed25519, PEM) that reports of moves are signed with "
        "(docs/formats.md). Default: they are not signed.",
    ),
    our_file_key(
        "report.signing.key.password", "string", None, "Password of that key, where it has one."
    ),
    our_file_key(
        "log.format",
        "choice",
        "text",
        "How commands, service and replicator log to stderr: text for people, or a JSON object a "
        "line (docs/monitoring.md). `SRM_LOG_FORMAT` in the environment wins.",
        choices=("text", "json"),
    ),
    *SERVICE_KEYS,
)

FLOW_KEYS: Final = (
    ConfigKey(
        "enabled",
        "boolean",
        "false",
        "Whether this flow copies. `A->B = true` says the same.",
        scope="replication",
    ),
    ConfigKey(
        "topics",
        "regexes",
        "",
        "Topics to copy: names or regular expressions, full match. The lists of srm-control add "
        "to it. Empty selects nothing (MirrorMaker 2 would copy everything).",
    ),
    ConfigKey(
        "topics.exclude",
        "regexes",
        r"mm2.*\.internal, .*\.replica, __.*",
        "Topics never to copy; wins over `topics`. Internal topics of Kafka, Connect, MirrorMaker "
        "2 and srm are never copied; `orders.internal` is not internal (KIP-1074).",
        deprecated=("topics.blacklist",),
    ),
    ConfigKey(
        "groups",
        "regexes",
        "",
        "Consumer groups whose progress is carried over. The lists of srm-control add to it. "
        "Empty selects nothing (MirrorMaker 2 would take all).",
    ),
    ConfigKey(
        "groups.exclude",
        "regexes",
        "console-consumer-.*, connect-.*, __.*",
        "Consumer groups to leave alone; wins over `groups`.",
        deprecated=("groups.blacklist",),
    ),
    ConfigKey(
        "config.properties.exclude",
        "regexes",
        r"follower\.replication\.throttled\.replicas, leader\.replication\.throttled\.replicas, "
        r"message\.timestamp\.difference\.max\.ms, log\.message\.timestamp\.before\.max\.ms, "
        r"log\.message\.timestamp\.after\.max\.ms, message\.timestamp\.type, "
        r"unclean\.leader\.election\.enable, min\.insync\.replicas, "
        r"remote\.storage\.enable, local\.retention\.bytes, local\.retention\.ms",
        "Topic settings that are not carried to the remote topic. The default adds the settings of "
        "tiered storage to those of MirrorMaker 2: a target without it refuses such a topic.",
        deprecated=("config.properties.blacklist",),
    ),
    ConfigKey(
        "tasks.max",
        "count",
        "1",
        "Slots of the flow: long-lived Spark tasks that its partitions are balanced over.",
    ),
    ConfigKey(
        "replication.factor",
        "replication factor",
        "2",
        "Replication factor of remote topics that are created.",
    ),
    ConfigKey(
        "offset-syncs.topic.replication.factor",
        "replication factor",
        "3",
        "Replication factor of the offset syncs topic.",
        attribute="offset_syncs_replication_factor",
    ),
    ConfigKey(
        "checkpoints.topic.replication.factor",
        "replication factor",
        "3",
        "Replication factor of the checkpoints topic.",
        attribute="checkpoints_replication_factor",
    ),
    ConfigKey(
        "heartbeats.topic.replication.factor",
        "replication factor",
        "3",
        "Replication factor of the heartbeats topic.",
        attribute="heartbeats_replication_factor",
    ),
    our_key(
        "internal.topic.replication.factor",
        "replication factor",
        None,
        "Replication factor of the topics srm keeps its own state in. Default: the value of "
        "`offset-syncs.topic.replication.factor`.",
        attribute="internal_replication_factor",
    ),
    ConfigKey(
        "refresh.topics.enabled", "boolean", "true", "Whether new topics are looked for at all."
    ),
    ConfigKey(
        "refresh.topics.interval.seconds",
        "seconds",
        "2",
        "How often new topics and partitions are looked for (MirrorMaker 2: 600).",
    ),
    ConfigKey(
        "sync.topic.configs.enabled",
        "boolean",
        "true",
        "Whether settings of source topics are carried to their remote topics.",
    ),
    ConfigKey(
        "sync.topic.configs.interval.seconds",
        "seconds",
        "60",
        "How often `srm replicate` compares remote topics with their sources (MirrorMaker 2: 600).",
    ),
    ConfigKey(
        "use.defaults.from",
        "choice",
        "target",
        "Whose default applies to a setting that the source topic does not set: the target's, or "
        "the source's, which is then set on the remote topic.",
        choices=("source", "target"),
    ),
    ConfigKey(
        "sync.topic.acls.enabled",
        "boolean",
        "true",
        "Whether literal ACLs of source topics are added to their remote topics, without Write and "
        "with Read for All.",
    ),
    ConfigKey(
        "sync.topic.acls.interval.seconds",
        "seconds",
        "60",
        "As `sync.topic.configs.interval.seconds`: one comparison does both, at the shorter one.",
    ),
    our_key(
        "sync.acls.include",
        "list",
        "",
        "ACLs that are added too: `prefixed` (and `*`) of topics; `groups` that the flow selects; "
        "`transactional-ids`.",
        choices=("prefixed", "groups", "transactional-ids"),
    ),
    ConfigKey(
        "emit.checkpoints.enabled",
        "boolean",
        "true",
        "Whether checkpoints are written for the selected groups.",
    ),
    ConfigKey(
        "emit.checkpoints.interval.seconds", "seconds", "60", "How often checkpoints are written."
    ),
    ConfigKey(
        "sync.group.offsets.enabled",
        "boolean",
        "false",
        "Whether translated offsets are committed for idle groups on the target.",
    ),
    ConfigKey(
        "sync.group.offsets.interval.seconds",
        "seconds",
        None,
        "How often they are committed. Default: after each emission of checkpoints (MirrorMaker 2: "
        "60).",
    ),
    ConfigKey(
        "refresh.groups.enabled",
        "boolean",
        "true",
        "Whether new groups are looked for. Without it the first listing counts until the lists "
        "change.",
    ),
    ConfigKey(
        "refresh.groups.interval.seconds",
        "seconds",
        None,
        "How long a listing of the source's groups is used, so how late a new group may be seen; "
        "changed lists count at once. Default: listed with each emission of checkpoints "
        "(MirrorMaker 2: 600).",
    ),
    ConfigKey(
        "emit.heartbeats.enabled",
        "boolean",
        "true",
        "Whether heartbeats are written to the target, also while the flow is off.",
    ),
    ConfigKey(
        "emit.heartbeats.interval.seconds", "seconds", "1", "How often a heartbeat is written."
    ),
    ConfigKey(
        "heartbeats.replication.enabled",
        "boolean",
        "true",
        "Whether heartbeats topics of the source are copied without being listed in `topics`.",
    ),
    ConfigKey(
        "emit.offset-syncs.enabled",
        "boolean",
        "true",
        "Whether MirrorMaker 2's offset syncs are written in addition to the exact map.",
    ),
    ConfigKey(
        "offset-syncs.topic.location",
        "choice",
        "source",
        "Cluster that holds the offset syncs topic.",
        attribute="offset_syncs_location",
        choices=("source", "target"),
    ),
    ConfigKey(
        "replication.policy.class",
        "string",
        DEFAULT_POLICY,
        "How remote topics are named: DefaultReplicationPolicy (alias as prefix), "
        "IdentityReplicationPolicy (names stay) or a Python class of yours as `module:Class`.",
    ),
    ConfigKey(
        "replication.policy.separator",
        "string",
        ".",
        "Separator between alias and topic in the name of a remote topic.",
    ),
    ConfigKey(
        "replication.policy.internal.topic.separator.enabled",
        "boolean",
        "true",
        "Whether internal topics use the separator too; only true is supported where the "
        "separator is not `.`.",
    ),
    our_key(
        "reverse.checkpointing.enabled",
        "boolean",
        "false",
        "Whether progress on remote topics is carried back to their originals. Set it on the "
        "flow from the backup to the primary, or for all.",
        synonyms=("cloudera.reverse.checkpointing.enabled",),
    ),
    our_key(
        "reverse.checkpointed.topics",
        "regexes",
        "",
        "Remote topics on the flow's source (`P.Payments` for the flow `B->P`) whose progress is "
        "carried back. `srm-control reverse-checkpointed-topics` adds to it.",
    ),
    our_key(
        "checkpoints.engine",
        "choice",
        "task",
        "Where checkpoints and group offset sync run: in the Airflow task, or as a Spark job with "
        "the groups spread over Spark tasks.",
        choices=("task", "spark"),
    ),
    our_key(
        "checkpoints.proof.budget",
        "number",
        "200",
        "Of how many commits each emission of checkpoints compares the record there with the one "
        "at its translation, before it is written; groups take turns. 0: of none. Moves and drills "
        "always compare all of theirs.",
        attribute="proof_budget",
    ),
    our_key(
        "drill.schedule",
        "cron",
        None,
        "When the flow's failover is rehearsed: a cron expression such as `0 6 * * 1`, by which "
        "Airflow runs `srm_drill_<flow>`. Default: by hand only (`srm failover drill`).",
    ),
    our_key(
        "metrics.interval.seconds",
        "seconds",
        "5",
        "How often raw metrics are written per partition.",
    ),
    our_key(
        "metrics.windows.continuous",
        "boolean",
        "true",
        "Whether the replicator computes the metrics' windows while it copies, seconds after they "
        "end. Without it they are as old as the last `srm_metrics_aggregation`.",
    ),
    our_key(
        "data.loss.policy",
        "choice",
        "stop",
        "What happens to a partition whose next records are gone from the source, or refused by "
        "the target: stop and say so, or record the range and continue.",
        choices=("stop", "continue"),
    ),
    ConfigKey(
        "errors.tolerance",
        "choice",
        "none",
        "`all`: a record that the target refuses, such as one that is too large, is skipped: "
        "logged, counted as lost and named in `srm status`. What is gone from the source stays a "
        "matter of `data.loss.policy`.",
        origin="connect",
        choices=("none", "all"),
    ),
    ConfigKey(
        "admin.timeout.ms",
        "count",
        "30000",
        "How long a call to a cluster of the flow may take, with all its attempts, before it fails "
        "(MirrorMaker 2: 60000).",
    ),
    our_key(
        "replicator.max.bytes.per.second",
        "count",
        None,
        "Limit of the flow in bytes per second, over all its slots (each has a part of it, by its "
        "part of the partitions). Default: no limit but the quotas of the brokers.",
        attribute="max_bytes_per_second",
    ),
    our_key(
        "replicator.merge.batch.bytes",
        "number",
        "1048576",
        "Small batches of a partition that arrive together are merged up to this size. Where the "
        "target's `max.message.bytes` is less, srm finds out and merges less. 0: batches stay as "
        "their producers made them.",
        attribute="merge_bytes",
    ),
    our_key(
        "replicator.linger.ms",
        "number",
        "5",
        "Milliseconds that the replicator waits before the next fetch after a fetch of less than "
        "half a megabyte, as Kafka's producers do. This lowers the cost of a trickle, and of 20 "
        "brokers with little to do. 0: it fetches at once.",
        attribute="linger_ms",
    ),
    our_key(
        "failover.approval",
        "choice",
        "unplanned",
        "Which moves from the flow's source to its target wait in Airflow for a person's approval "
        "before anybody is held. The form may ask for one where this does not.",
        choices=("never", "unplanned", "always"),
    ),
    our_key(
        "failover.alert.seconds",
        "seconds",
        "60",
        "How long a step of a move in Airflow (approval, wait, verify) may wait before the first "
        "notification, and between notifications.",
        attribute="failover_alert_after",
    ),
    our_key(
        "failover.notifier",
        "string",
        "",
        "Class of an Airflow notifier for moves in Airflow (docs/airflow.md), such as "
        "`airflow.providers.slack.notifications.slack.SlackNotifier`. Default: none.",
    ),
    our_key(
        "failover.notifier.arguments",
        "string",
        "{}",
        "Its arguments, a JSON object; `{{ srm.text }}` in them is the message. Secrets belong "
        "into an Airflow connection that it names.",
    ),
    our_key(
        "failover.dry.run.schedule",
        "cron",
        None,
        "When a move from the flow's source to its target is planned without doing it (cron, UTC), "
        "such as `0 6 * * *`; the run is red when the move would be refused. Default: never.",
    ),
)

RECORD_KEYS: Final = (
    ConfigKey(
        "provenance.header.enable",
        "boolean",
        "false",
        "Whether each copied record gets a header that says where it comes from, and records that "
        "would return to the topic they came from are left out. On where both flows between two "
        "clusters keep names of topics, also while one of them is disabled.",
        origin="replicator",
    ),
    our_key("provenance.header.name", "string", PROVENANCE_HEADER, "Name of that header."),
    ConfigKey(
        "provenance.header.filter.overrides",
        "string",
        "",
        "Records that are copied although they return: `CLUSTER_ID,TOPIC,FROM-TO;...` with regular "
        "expressions and epoch milliseconds, `-` for any time.",
        origin="replicator",
    ),
    ConfigKey(
        "copy.source.offset.in.header.enabled",
        "boolean",
        "false",
        f"Whether each copied record gets a header `{SOURCE_OFFSETS_HEADER}` with its offset in "
        "each cluster it comes through.",
        origin="srm",
    ),
    our_key(
        "records.exclude.headers",
        "regexes",
        "",
        "Records with a header of such a name are not copied.",
    ),
)
"""Keys about the treatment of records; the loader makes one value of them."""

FILTER_CLASSES: Final = {
    "topic.filter.class": "org.apache.kafka.connect.mirror.DefaultTopicFilter",
    "group.filter.class": "org.apache.kafka.connect.mirror.DefaultGroupFilter",
    "config.property.filter.class": "org.apache.kafka.connect.mirror.DefaultConfigPropertyFilter",
}
"""Classes of MirrorMaker 2 whose rules the lists follow."""

CLASS_KEYS: Final = tuple(
    ConfigKey(
        name,
        "string",
        java_class,
        "The default, or a Python class of yours as `module:Class` (docs/configuration.md).",
    )
    for name, java_class in FILTER_CLASSES.items()
)

STACK_PREFIX: Final = "stack."
SPARK_PREFIX: Final = "spark."
PROVIDERS_KEY: Final = "config.providers"

KEYS: Final = {
    name: key
    for key in (*FILE_KEYS, *FLOW_KEYS, *MOVE_KEYS, *RECORD_KEYS, *CLASS_KEYS, *IGNORED_KEYS)
    for name in (key.name, *key.synonyms, *key.deprecated)
}
"""Every key by each of its names."""


def find_key(name: str) -> ConfigKey | None:
    """Return the key of that name, or the family of meaningless keys that it belongs to."""
    if name in KEYS:
        return KEYS[name]
    return next((key for key in IGNORED_PREFIXES if name.startswith(key.name)), None)
