"""Names of the compacted topics that hold all state of srm, and of MM2's compatible ones.

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
srm-routing.internal                each cluster      which cluster clients shall use, or hold
srm-moves.internal                  each cluster      plans, progress and reports of moves; what
                                                      was proven of checkpoints; drills
srm-metrics-<SOURCE>.internal       target            raw metrics (not compacted)
srm-metrics-windows.internal        target            windowed metrics
srm-verification.<SOURCE>.internal  target            latest verification result per partition
srm-service-heartbeats.internal     target            where services that watch it are asked
==================================  ================  ==========================================
"""

from __future__ import annotations

HEARTBEATS = "heartbeats"
LEDGER = "srm-ledger.internal"
ROUTING = "srm-routing.internal"
MOVES = "srm-moves.internal"
METRICS_WINDOWS = "srm-metrics-windows.internal"
SERVICE_HEARTBEATS = "srm-service-heartbeats.internal"
# "srm-service.heartbeats", as SRM has it, says to MM2 that there is a source named srm-service.


def offset_syncs(other_alias: str, separator: str = ".") -> str:
    """MM2 offset syncs; named after the cluster that does not host the topic."""
    return f"mm2-offset-syncs{separator}{other_alias}{separator}internal"


def checkpoints(source_alias: str, separator: str = ".") -> str:
    """MM2 checkpoints of the flow from ``source_alias``, on its target."""
    return f"{source_alias}{separator}checkpoints{separator}internal"


def offset_map(source_alias: str) -> str:
    """Exact offset map of the flow from ``source_alias``, on its target."""
    return f"srm-offset-map.{source_alias}.internal"


def replication(source_alias: str) -> str:
    """Assignments, positions and driver heartbeat of the flow from ``source_alias``."""
    return f"srm-replication.{source_alias}.internal"


def control(source_alias: str) -> str:
    """Allow and deny lists of the flow from ``source_alias``, on its target."""
    return f"srm-control.{source_alias}.internal"


def raw_metrics(source_alias: str) -> str:
    """Raw metrics of the flow from ``source_alias``, on its target."""
    return f"srm-metrics-{source_alias}.internal"


def verification(source_alias: str) -> str:
    """Latest verification result per partition of the flow from ``source_alias``."""
    return f"srm-verification.{source_alias}.internal"
