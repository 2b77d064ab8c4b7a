"""Keys of others that are understood and have no meaning here: each is answered with a warning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from srm.config.keys.config_key import ConfigKey, Origin

_NO_WORKERS: Final = "srm has no Connect workers."
_NO_REST: Final = "srm has no Connect REST server."
_OWN_STATE: Final = "Positions are kept with the offset map; use internal.topic.replication.factor."

_TABLE: Final[dict[Origin, dict[str, str]]] = {
    "mm2": {
        "The offset map is exact whatever the lag.": "offset.lag.max",
        "Records are not polled one by one.": "consumer.poll.timeout.ms",
        "Topic settings are always altered so.": "use.incremental.alter.configs",
        "Metrics always name their flow.": "add.source.alias.to.metrics",
        "It names a Java class.": "forwarding.admin.class",
        _NO_WORKERS: "dedicated.mode.enable.internal.rest",
    },
    "connect": {
        "Each copied record is in the map at once.": (
            "offset.flush.interval.ms offset.flush.timeout.ms"
        ),
        "Each record is copied exactly once, always.": (
            "exactly.once.source.support exactly.once.support transaction.boundary*"
        ),
        "It is for Java classes.": "plugin.path plugin.discovery connector.plugin.version",
        "Flows are named by their prefix.": "source.cluster.alias target.cluster.alias",
        _NO_WORKERS: (
            "name tasks.max.enforce config.action.reload connector.class connect.protocol "
            "rebalance.timeout.ms task.shutdown.* task.assigned.* "
            "worker.sync.timeout.ms worker.unsync.backoff.ms "
            "inter.worker.* topic.tracking.* internal.key.converter* internal.value.converter* "
            "metrics.context.*"
        ),
        "Slots take over partitions at once.": "scheduled.rebalance.max.delay.ms",
        "Every client setting may be set.": "connector.client.config.override.policy",
        _OWN_STATE: "offset.storage.* offsets.storage.* config.storage.* status.storage.*",
        "Records are copied byte for byte.": (
            "key.converter* value.converter* header.converter* transforms* predicates*"
        ),
        "Each skipped record is logged, by its offset.": "errors.log.*",
        "Writes are tried again until they succeed or are refused.": "errors.retry.*",
        "It is for sink connectors.": "errors.deadletterqueue.*",
        "Remote topics are created by srm.": "topic.creation.*",
        "It is a setting of brokers.": "offsets.topic.replication.factor transaction.state.log.*",
        _NO_REST: "listeners* rest.* admin.listeners* access.control.* response.http.*",
    },
    "srm": {
        _NO_WORKERS: "connect.start.task.timeout.ms",
        "Reading creates no topic.": "disable.source.topic.auto.creation=true",
        "Internal topics are never copied.": "srm.internal.topic.exclude.enable",
        _OWN_STATE: "metrics.topic.replication.factor control.topic.replication.factor",
        "Made when needed.": "metrics.topic.creation.for.possible.flows.enabled",
        "Use metrics.interval.seconds.": "metrics.period",
        "Every cluster is named in `clusters`.": "colocated.cluster.alias external_kafka_accounts",
        _NO_REST: "mm.*",
        "srm has no metrics server.": "metrics.jetty.server.*",
        "It configures Cloudera Manager.": "streams.replication.manager.*",
        "It configures the SRM service.": "srm.service.*",
    },
}
"""The names of keys by their owner and by the reason why they have no meaning: ``*`` is any ending,
``=value`` the value that needs no warning, since it says what happens anyway."""


def _keys(*, families: bool) -> Iterator[ConfigKey]:
    rows = ((origin, *row) for origin, reasons in _TABLE.items() for row in reasons.items())
    for origin, doc, names in rows:
        for written in names.split():
            name, _, quiet = written.partition("=")
            if name.endswith("*") == families:
                plain, said = name.rstrip("*"), (quiet,) if quiet else ()
                yield ConfigKey(plain, "string", None, doc, origin, effect=False, quiet=said)


IGNORED_KEYS: Final = tuple(_keys(families=False))
IGNORED_PREFIXES: Final = tuple(_keys(families=True))
