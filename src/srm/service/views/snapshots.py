"""What the service knows of a target cluster at one moment: frozen, replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from srm.config.model import FlowConfig
from srm.domain.moves.records.plan import MovePlan
from srm.domain.moves.records.progress import MoveProgress
from srm.domain.moves.records.revisions import KeptReport
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.recovery.drill import Drill
from srm.engine.flows.observing import FlowState
from srm.service.views.documents import State
from srm.service.views.series import Measured


@dataclass(frozen=True, slots=True)
class StateChange:
    """A flow in another state than before; ``time_ms`` is that of the first look that saw it.

    ``reason`` is the first of the new state, ``lasted_ms`` how long the former one was seen for;
    None: it was there when the service began to look.
    """

    time_ms: int
    state: State
    reason: str
    former: State
    lasted_ms: int | None


@dataclass(frozen=True, slots=True)
class Healed:
    """A topic that was stopped and is not any more; ``time_ms`` is that of the first such look.

    ``reason`` is why it was, ``since_ms`` since when, None: not known.
    """

    time_ms: int
    topic: str
    reason: str
    since_ms: int | None


@dataclass(frozen=True, eq=False)
class FlowLook:
    """One flow as it was last seen.

    ``config`` has the lists of srm-control merged in. ``view`` is what the last look that succeeded
    found, at ``looked_ms`` (epoch milliseconds), None before the first one; ``error`` says why the
    latest look failed, if it did. ``measured`` are the newest windows by topic, the empty name is
    the flow itself. ``changes`` are those of its state that were seen, ``healed`` its topics that
    were seen stopped before; the newest last.
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
    """One move as a cluster knows it: its plan, how far it is, and what is left of it.

    ``waits`` is what one that holds clients was last seen to wait for, at ``waits_ms`` by the clock
    of whoever looked (epoch milliseconds; 0: nobody has): he may be gone.
    """

    plan: MovePlan
    progress: MoveProgress
    report: KeptReport | None = None
    waits: tuple[str, ...] = ()
    waits_ms: int = 0


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


@dataclass(frozen=True, slots=True)
class Committed:
    """Offsets of a group on one cluster, next to read; ``error`` says why they are not known."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class GroupCommits:
    """What a group has committed on the source and on the target of a flow."""

    source: Committed = field(default_factory=Committed)
    target: Committed = field(default_factory=Committed)
