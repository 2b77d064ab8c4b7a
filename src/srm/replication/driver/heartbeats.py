"""MM2 heartbeats: one record per interval in ``heartbeats`` on the flow's target.

MirrorClient and RemoteClusterUtils find clusters and hops by them. They are written plainly, not
in the driver's transactions: each transaction marker would be a gap in the log of a topic that the
opposite flow replicates.
"""

from __future__ import annotations

import logging
import threading

from srm.domain.groups.mm2_records import Heartbeat
from srm.domain.names import internal_topics
from srm.engine.ports import FlowContext
from srm.errors import SrmError

logger = logging.getLogger(__name__)


def emit_heartbeats(context: FlowContext, stop: threading.Event) -> None:
    """Write a heartbeat per interval until ``stop``; an outage is logged once and waited out."""
    config = context.config
    if not config.emit_heartbeats_enabled:
        return
    topic = context.target.compacted_topic(internal_topics.HEARTBEATS)
    failing = False
    while not stop.is_set():
        try:
            heartbeat = Heartbeat(config.flow, context.now_ms())
            topic.write({heartbeat.key(): heartbeat.value()})
            failing = False
        except SrmError as error:
            if not failing:
                logger.warning("%s: no heartbeats for now: %s", config.flow, error)
            failing = True
        stop.wait(config.emit_heartbeats_interval.total_seconds())
