"""Keys of others that are understood and have no meaning here: each is answered with a warning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from srm.config.config_key import ConfigKey, Origin

_NO_WORKERS: Final = "There are no Connect workers."
_NO_REST: Final = "There is no Connect REST server."
_BYTES: Final = "Records are copied byte for byte."
_ONCE: Final = "Each record is copied exactly once, always."
_OWN_STATE: Final = "Positions are kept with the offset map; use internal.topic.replication.factor."
_BY_PREFIX: Final = "Flows are named by their prefix."
_IN_CLUSTERS: Final = "Every cluster is named in `clusters`."

_TABLE: Final[tuple[tuple[Origin, str, str], ...]] = (
    ("mm2", "The offset map is exact whatever the lag.", "offset.lag.max"),
    ("mm2", "Records are not polled one by one.", "consumer.poll.timeout.ms"),
    ("mm2", "Set `admin.request.timeout.ms` instead.", "admin.timeout.ms"),
    (
        "mm2",
        "The DAG `srm_topic_sync` and `srm topics sync` compare topic settings.",
        "sync.topic.configs.interval.seconds",
    ),
    (
        "mm2",
        "A long `refresh.groups.interval.seconds` has the same effect.",
        "refresh.groups.enabled=true",
    ),
    (
        "mm2",
        "ACLs are not copied.",
        "sync.topic.acls.enabled=false sync.topic.acls.interval.seconds",
    ),
    ("mm2", "Topic settings are always altered so.", "use.incremental.alter.configs"),
    ("mm2", "Settings at their default stay the target's.", "use.defaults.from"),
    ("mm2", "Metrics always name their flow.", "add.source.alias.to.metrics"),
    ("mm2", "It names a Java class.", "forwarding.admin.class"),
    ("mm2", _NO_WORKERS, "dedicated.mode.enable.internal.rest"),
    (
        "connect",
        "Each copied record is in the map at once.",
        "offset.flush.interval.ms offset.flush.timeout.ms",
    ),
    ("connect", _ONCE, "exactly.once.source.support exactly.once.support transaction.boundary*"),
    ("connect", "It is for Java classes.", "plugin.path plugin.discovery connector.plugin.version"),
    ("connect", _BY_PREFIX, "source.cluster.alias target.cluster.alias"),
    (
        "connect",
        _NO_WORKERS,
        (
            "name tasks.max.enforce config.action.reload connector.class connect.protocol "
            "rebalance.timeout.ms task.* worker.sync.timeout.ms worker.unsync.backoff.ms "
            "inter.worker.* topic.tracking.* internal.key.converter* internal.value.converter* "
            "metrics.context.*"
        ),
    ),
    ("connect", "Slots take over partitions at once.", "scheduled.rebalance.max.delay.ms"),
    ("connect", "Every client setting may be set.", "connector.client.config.override.policy"),
    ("connect", _OWN_STATE, "offset.storage.* offsets.storage.* config.storage.* status.storage.*"),
    (
        "connect",
        _BYTES,
        "key.converter* value.converter* header.converter* transforms* predicates*",
    ),
    ("connect", "A record that cannot be copied stops its partition with a reason.", "errors.*"),
    ("connect", "Remote topics are created by srm.", "topic.creation.*"),
    (
        "connect",
        "It is a setting of brokers.",
        "offsets.topic.replication.factor transaction.state.log.*",
    ),
    (
        "connect",
        _NO_REST,
        "listeners* rest.* admin.listeners* access.control.* response.http.*",
    ),
    ("srm", _NO_WORKERS, "connect.start.task.timeout.ms"),
    ("srm", "Reading creates no topic.", "disable.source.topic.auto.creation=true"),
    ("srm", "Internal topics are never copied.", "srm.internal.topic.exclude.enable"),
    ("srm", _OWN_STATE, "metrics.topic.replication.factor control.topic.replication.factor"),
    ("srm", "Made when needed.", "metrics.topic.creation.for.possible.flows.enabled"),
    ("srm", "Use metrics.interval.seconds.", "metrics.period"),
    ("srm", _IN_CLUSTERS, "colocated.cluster.alias external_kafka_accounts"),
    ("srm", _NO_REST, "mm.*"),
    ("srm", "There is no metrics server.", "metrics.jetty.server.*"),
    ("srm", "It configures Cloudera Manager.", "streams.replication.manager.*"),
    ("srm", "It configures the SRM service.", "srm.service.*"),
)
"""Whose keys they are, why they have no meaning, and their names: ``*`` stands for any ending, and
``=value`` for the one that needs no warning, since it says what happens anyway."""


def _keys(*, families: bool) -> Iterator[ConfigKey]:
    for origin, doc, names in _TABLE:
        for written in names.split():
            name, _, quiet = written.partition("=")
            if name.endswith("*") == families:
                said = (quiet,) if quiet else ()
                text = name.rstrip("*")
                yield ConfigKey(text, "string", None, doc, origin, effect=False, quiet=said)


IGNORED_KEYS: Final = tuple(_keys(families=False))
IGNORED_PREFIXES: Final = tuple(_keys(families=True))
