"""Snapshots of a target cluster at one moment: frozen, replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from srm.config.model import FlowConfig
from srm.domain.moves.disaster import Drill
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import MoveProgress
from srm.domain.moves.revisions import KeptReport
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.status.observing import FlowState
from srm.service.views.documents import State
from srm.service.views.series import Measured


@dataclass(frozen=True, slots=True)
class StateChange:
    """A state change of a flow; ``time_ms`` is the time of the first look that saw it.

    ``reason`` is the first reason of the new state.
    ``lasted_ms`` is the observed duration of the former state; None: it predates the first look.
    """

    time_ms: int
    state: State
    reason: str
    former: State
    lasted_ms: int | None


@dataclass(frozen=True, slots=True)
class Healed:
    """A topic that is no longer stopped; ``time_ms`` is the time of the first look that saw it.

    ``reason`` is why it was stopped, ``since_ms`` since when; None: unknown.
    """

    time_ms: int
    topic: str
    reason: str
    since_ms: int | None


@dataclass(frozen=True, eq=False)
class FlowLook:
    """One flow at its latest look.

    ``view`` is the result of the last successful look, None before, at ``looked_ms``.
    ``error`` is why the latest look failed, if it did.
    ``measured`` are the newest windows by topic; the empty name is the flow itself.
    ``changes`` are its state changes, ``healed`` its topics no longer stopped; the newest last.
    """

    flow: Flow
    config: FlowConfig
    view: FlowState | None = None
    looked_ms: int = 0
    error: str = ""
    measured: Mapping[str, Measured] = field(default_factory=dict)
    changes: tuple[StateChange, ...] = ()
    healed: tuple[Healed, ...] = ()


@dataclass(frozen=True, eq=False)
class MoveLook:
    """Plan, progress and report of one move, as recorded on a cluster.

    ``waits`` is the last known wait of a move that holds clients; its process may have ended.
    ``waits_ms`` is the time of ``waits`` by that process's clock, epoch milliseconds; 0: none.
    """

    plan: MovePlan
    progress: MoveProgress
    report: KeptReport | None = None
    waits: tuple[str, ...] = ()
    waits_ms: int = 0


@dataclass(frozen=True, eq=False)
class TargetLook:
    """Flows into one cluster, and its recorded moves and drills; ``cluster_id`` is Kafka's."""

    alias: str
    cluster_id: str = ""
    flows: Mapping[Flow, FlowLook] = field(default_factory=dict)
    moves: tuple[MoveLook, ...] = ()
    drills: tuple[Drill, ...] = ()
    looked_ms: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Committed:
    """Committed offsets of a group on one cluster; ``error`` is why they are unknown."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class GroupCommits:
    """Committed offsets of a group on the source and on the target of a flow."""

    source: Committed = field(default_factory=Committed)
    target: Committed = field(default_factory=Committed)
