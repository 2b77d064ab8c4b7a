"""Names of the compacted topics with all state of srm, and of those compatible with MM2.

==================================  ================  ==========================================
topic                               on                holds
==================================  ================  ==========================================
mm2-offset-syncs.<TARGET>.internal  source (default)  MM2 offset syncs
<SOURCE>.checkpoints.internal       target            MM2 checkpoints, forward and reverse
heartbeats                          target            MM2 heartbeats
srm-offset-map.<SOURCE>.internal    target            exact offset map, blocks of runs
srm-replication.<SOURCE>.internal   target            assignments, positions, heartbeat, requests
srm-control.<SOURCE>.internal       target            allow and deny lists of srm-control
srm-ledger.internal                 each cluster      group offsets that srm itself wrote there
srm-routing.internal                each cluster      cluster for the clients to use, or a hold
srm-moves.internal                  each cluster      plans, progress and reports of moves; proofs
                                                      of checkpoints; drills
srm-metrics-<SOURCE>.internal       target            raw metrics (not compacted)
srm-metrics-windows.internal        target            windowed metrics
srm-verification.<SOURCE>.internal  target            latest verification result per partition
srm-service-heartbeats.internal     target            addresses of the services that watch it
==================================  ================  ==========================================
"""

from __future__ import annotations

HEARTBEATS = "heartbeats"
LEDGER = "srm-ledger.internal"
ROUTING = "srm-routing.internal"
MOVES = "srm-moves.internal"
METRICS_WINDOWS = "srm-metrics-windows.internal"
SERVICE_HEARTBEATS = "srm-service-heartbeats.internal"
# MM2 would take SRM's name "srm-service.heartbeats" for that of a source named srm-service.


def offset_syncs(other_alias: str, separator: str = ".") -> str:
    """Return the topic of MM2 offset syncs, named after the cluster that does not host it."""
    return f"mm2-offset-syncs{separator}{other_alias}{separator}internal"


def checkpoints(source_alias: str, separator: str = ".") -> str:
    """Return the topic of MM2 checkpoints of the flow from ``source_alias``, on its target."""
    return f"{source_alias}{separator}checkpoints{separator}internal"


def offset_map(source_alias: str) -> str:
    """Return the topic of the exact offset map of the flow from ``source_alias``, on its target."""
    return f"srm-offset-map.{source_alias}.internal"


def replication(source_alias: str) -> str:
    """Return the topic of assignments, positions and driver heartbeat of a flow, on its target."""
    return f"srm-replication.{source_alias}.internal"


def control(source_alias: str) -> str:
    """Return the topic of allow and deny lists of the flow from ``source_alias``, on its target."""
    return f"srm-control.{source_alias}.internal"


def raw_metrics(source_alias: str) -> str:
    """Return the topic of raw metrics of the flow from ``source_alias``, on its target."""
    return f"srm-metrics-{source_alias}.internal"


def verification(source_alias: str) -> str:
    """Return the topic of verification results of the flow from ``source_alias``, on its target."""
    return f"srm-verification.{source_alias}.internal"
