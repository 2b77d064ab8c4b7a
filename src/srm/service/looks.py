"""What the service knows of a target cluster at one moment: frozen, replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from srm.config.model import FlowConfig
from srm.domain.drill import Drill
from srm.domain.move.plan import MovePlan
from srm.domain.move.progress import MoveProgress
from srm.domain.move.revisions import KeptReport
from srm.domain.topics import Flow
from srm.engine.observing import FlowView
from srm.service.series import Measured


@dataclass(frozen=True, eq=False)
class FlowLook:
    """One flow as it was last seen.

    ``config`` has the lists of srm-control merged in. ``view`` is what the last look that succeeded
    found, at ``looked_ms`` (epoch milliseconds), None before the first one; ``error`` says why the
    latest look failed, if it did. ``measured`` are the newest windows by topic, the empty name is
    the flow itself.
    """

    flow: Flow
    config: FlowConfig
    view: FlowView | None = None
    looked_ms: int = 0
    error: str = ""
    measured: Mapping[str, Measured] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class MoveLook:
    """One move as a cluster knows it: its plan, how far it is, and what is left of it."""

    plan: MovePlan
    progress: MoveProgress
    report: KeptReport | None = None


@dataclass(frozen=True, eq=False)
class TargetLook:
    """All flows into one cluster, and the moves and drills it keeps; ``cluster_id`` is Kafka's."""

    alias: str
    cluster_id: str = ""
    flows: Mapping[Flow, FlowLook] = field(default_factory=dict)
    moves: tuple[MoveLook, ...] = ()
    drills: tuple[Drill, ...] = ()
    looked_ms: int = 0
    error: str = ""
