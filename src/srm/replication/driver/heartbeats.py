"""MM2 heartbeats: of a flow that is copied, and of pairs of clusters whose flow is off.

So each cluster of an application has a heartbeats topic. A flow from it has a topic to copy, even a
flow that others set up, and MirrorClient counts hops on it. A heartbeat is outside transactions:
each marker would be a gap in a log that the opposite flow copies.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Final

from srm.config.model import Config, FlowConfig
from srm.domain.groups.mm2_records import Heartbeat
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.engine.cluster_ports import Cluster
from srm.engine.control.compacted import compacted_spec
from srm.errors import AuthorizationError, SrmError

logger = logging.getLogger(__name__)
_REFUSED_S: Final = 60.0


def disabled_flows(config: Config, flows: Collection[Flow]) -> Mapping[str, list[FlowConfig]]:
    """Return the flows that are off and still have heartbeats, by their targets: ends of ``flows``.

    A cluster that a restore fills stays as it is: its source has no alias in the file.
    """
    copied = [flow for flow in flows if flow.source in config.clusters]
    ends = {alias for flow in copied for alias in (flow.source, flow.target)}
    found = defaultdict[str, list[FlowConfig]](list)
    for flow, settings in config.flow_configs.items():
        if flow.target in ends and not settings.enabled and settings.emit_heartbeats_enabled:
            found[flow.target].append(settings)
    return found


def emit_heartbeats(
    target: Cluster,
    flows: Collection[FlowConfig],
    now_ms: Callable[[], int],
    stop: threading.Event,
) -> None:
    """Write heartbeats until ``stop``, at the shortest interval, into a topic made if absent."""
    beating = [settings for settings in flows if settings.emit_heartbeats_enabled]
    if not beating:
        return
    names = ", ".join(str(settings.flow) for settings in beating)
    interval_s = min(one.emit_heartbeats_interval.total_seconds() for one in beating)
    topic, exists, failing = target.compacted_topic(internal_topics.HEARTBEATS), False, False
    while not stop.is_set():
        wait_s = interval_s
        try:
            if not exists:
                _create(target, beating[0])
            beats = [Heartbeat(settings.flow, now_ms()) for settings in beating]
            topic.write({beat.key(): beat.value() for beat in beats})
            exists, failing = True, False
        except SrmError as error:
            if not failing:
                logger.warning(
                    "%s: no heartbeats for now (emit.heartbeats.enabled = false stops them): %s",
                    *(names, error),
                )
            exists, failing = False, True
            if isinstance(error, AuthorizationError):
                wait_s = max(interval_s, _REFUSED_S)
        stop.wait(wait_s)


def _create(target: Cluster, settings: FlowConfig) -> None:
    if internal_topics.HEARTBEATS not in target.partition_counts():
        factor = settings.heartbeats_replication_factor
        target.create_topics([compacted_spec(internal_topics.HEARTBEATS, factor)])
