"""Raw metrics that components other than slots write: a few records at a time, best effort."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from srm.config.model import FlowConfig
from srm.domain.names import internal_topics
from srm.engine.cluster_ports import TopicSpec
from srm.engine.ports import FlowContext
from srm.errors import SrmError

logger = logging.getLogger(__name__)

_ONE_DAY: Final = {"cleanup.policy": "delete", "retention.ms": str(24 * 60 * 60 * 1000)}


def raw_metrics_spec(config: FlowConfig) -> TopicSpec:
    """Describe the raw metrics topic of a flow, to create it on the target."""
    topic = internal_topics.raw_metrics(config.flow.source)
    return TopicSpec(topic, 1, config.internal_replication_factor, _ONE_DAY)


def tell(context: FlowContext, teller: str, values: Collection[bytes]) -> bool:
    """Write raw records of component ``teller``, return if any were written; log a failure."""
    if not values:
        return False
    spec = raw_metrics_spec(context.config)
    try:
        # A replicator may never have run; a producer would wait long for a missing topic.
        if spec.name not in context.target.partition_counts():
            context.target.create_topics([spec])
        table = context.target.compacted_topic(spec.name)
        for value in values:
            table.write({teller.encode(): value})
    except SrmError as error:
        logger.warning("%s: no metrics of %s: %s", context.config.flow, teller, error)
        return False
    return True
