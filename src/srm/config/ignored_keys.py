"""Keys of others that are understood and have no meaning here: each is answered with a warning."""

from __future__ import annotations

from typing import Final

from srm.config.config_key import ConfigKey, Origin


def _ignored(
    name: str, doc: str, origin: Origin = "connect", quiet: tuple[str, ...] = ()
) -> ConfigKey:
    return ConfigKey(name, "string", None, doc, origin, effect=False, quiet=quiet)


_CONFIGS_AT_REFRESH: Final = "Topic settings are compared at each topic refresh."
_GROUPS_AT_EMISSION: Final = "A long `refresh.groups.interval.seconds` has the same effect."
_NO_WORKERS: Final = "There are no Connect workers."
_BROKER: Final = "It is a setting of brokers."
_OWN_STATE: Final = "Positions are kept with the offset map; use internal.topic.replication.factor."

IGNORED_KEYS: Final = (
    _ignored("offset.lag.max", "The offset map is exact whatever the lag.", "mm2"),
    _ignored("consumer.poll.timeout.ms", "Records are not polled one by one.", "mm2"),
    _ignored("admin.timeout.ms", "Set `admin.request.timeout.ms` instead.", "mm2"),
    _ignored("sync.topic.configs.interval.seconds", _CONFIGS_AT_REFRESH, "mm2"),
    _ignored("refresh.groups.enabled", _GROUPS_AT_EMISSION, "mm2", ("true",)),
    _ignored("sync.topic.acls.enabled", "ACLs are not copied.", "mm2", ("false",)),
    _ignored("sync.topic.acls.interval.seconds", "ACLs are not copied.", "mm2"),
    _ignored("use.incremental.alter.configs", "Topic settings are always altered so.", "mm2"),
    _ignored("use.defaults.from", "Settings at their default stay the target's.", "mm2"),
    _ignored("add.source.alias.to.metrics", "Metrics always name their flow.", "mm2"),
    _ignored("offset.flush.interval.ms", "Each copied record is in the map at once."),
    _ignored("offset.flush.timeout.ms", "Each copied record is in the map at once."),
    _ignored("exactly.once.source.support", "Each record is copied exactly once, always."),
    _ignored("transaction.boundary", "Each record is copied exactly once, always."),
    _ignored("dedicated.mode.enable.internal.rest", _NO_WORKERS, "mm2"),
    _ignored("forwarding.admin.class", "It names a Java class.", "mm2"),
    _ignored("plugin.path", "It is for Java classes."),
    _ignored("plugin.discovery", "It is for Java classes."),
    _ignored("name", _NO_WORKERS),
    _ignored("source.cluster.alias", "Flows are named by their prefix."),
    _ignored("target.cluster.alias", "Flows are named by their prefix."),
    _ignored("tasks.max.enforce", _NO_WORKERS),
    _ignored("config.action.reload", _NO_WORKERS),
    _ignored("offsets.topic.replication.factor", _BROKER),
    _ignored("connector.class", _NO_WORKERS),
    _ignored("scheduled.rebalance.max.delay.ms", "Slots take over partitions at once."),
    _ignored("connect.protocol", _NO_WORKERS),
    _ignored("connector.client.config.override.policy", "Every client setting may be set."),
    _ignored("rebalance.timeout.ms", _NO_WORKERS),
    _ignored("inter.worker.signature.algorithm", _NO_WORKERS),
    _ignored("connect.start.task.timeout.ms", _NO_WORKERS, "srm"),
    _ignored("disable.source.topic.auto.creation", "Reading creates no topic.", "srm", ("true",)),
    _ignored("srm.internal.topic.exclude.enable", "Internal topics are never copied.", "srm"),
    _ignored("metrics.topic.replication.factor", _OWN_STATE, "srm"),
    _ignored("control.topic.replication.factor", _OWN_STATE, "srm"),
    _ignored("metrics.topic.creation.for.possible.flows.enabled", "Made when needed.", "srm"),
    _ignored("metrics.period", "Use metrics.interval.seconds.", "srm"),
    _ignored("colocated.cluster.alias", "Every cluster is named in `clusters`.", "srm"),
    _ignored("external_kafka_accounts", "Every cluster is named in `clusters`.", "srm"),
)

IGNORED_PREFIXES: Final = (
    _ignored("offset.storage.", _OWN_STATE),
    _ignored("config.storage.", _OWN_STATE),
    _ignored("status.storage.", _OWN_STATE),
    _ignored("key.converter", "Records are copied byte for byte."),
    _ignored("value.converter", "Records are copied byte for byte."),
    _ignored("header.converter", "Records are copied byte for byte."),
    _ignored("transforms", "Records are copied byte for byte."),
    _ignored("predicates", "Records are copied byte for byte."),
    _ignored("errors.", "A record that cannot be copied stops its partition with a reason."),
    _ignored("task.", _NO_WORKERS),
    _ignored("worker.", _NO_WORKERS),
    _ignored("inter.worker.", _NO_WORKERS),
    _ignored("topic.tracking.", _NO_WORKERS),
    _ignored("topic.creation.", "Remote topics are created by srm."),
    _ignored("internal.key.converter", _NO_WORKERS),
    _ignored("internal.value.converter", _NO_WORKERS),
    _ignored("metrics.context.", _NO_WORKERS),
    _ignored("transaction.state.log.", _BROKER),
    _ignored("listeners", "There is no Connect REST server."),
    _ignored("rest.", "There is no Connect REST server."),
    _ignored("admin.listeners", "There is no Connect REST server."),
    _ignored("access.control.", "There is no Connect REST server."),
    _ignored("response.http.", "There is no Connect REST server."),
    _ignored("mm.", "There is no Connect REST server.", "srm"),
    _ignored("metrics.jetty.server.", "There is no metrics server.", "srm"),
    _ignored("streams.replication.manager.", "It configures Cloudera Manager.", "srm"),
    _ignored("srm.service.", "It configures the SRM service.", "srm"),
)
