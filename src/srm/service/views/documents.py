"""Documents that the REST API returns. Times are epoch milliseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from srm.domain.moves.progress import Carrier
from srm.domain.moves.report import MoveResult
from srm.domain.names.topics import Flow
from srm.domain.text.amount import Reason
from srm.engine.status.status import State as HealthState
from srm.service.views.series import Measured

State = HealthState | Literal["UNKNOWN"]
"""State of a flow or topic; UNKNOWN: the latest look failed, or there was none yet."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Page(Generic[_T]):
    """A part of a list.

    ``total`` counts all matches; ``offset`` is the number of the first of ``items``.
    ``missing`` gives by target the reason why its items are missing: the answer is partial.
    """

    items: tuple[_T, ...]
    total: int
    offset: int
    missing: dict[str, str]


@dataclass(frozen=True, slots=True)
class ReplicatorRow:
    """The replicator of a flow; ``heartbeat_ms`` is the time of its last heartbeat.

    ``alive``, ``slots_alive``: None if unknown, as the target did not answer.
    """

    application_id: str
    host: str
    heartbeat_ms: int
    alive: bool | None
    slots: int
    slots_alive: int | None


@dataclass(frozen=True, slots=True)
class ForecastLine:
    """Forecast of the loss if the source failed now, as ``line`` and as figures.

    ``records_lost`` were not copied when the source last answered.
    ``records_lost_at_most`` adds those that it may have accepted since; None: no bound is known.
    ``records_read_again`` is what groups committed since their checkpoints, ``unread_backlog`` what
    is after those of groups whose commits are unknown; they read again what they read of it.
    """

    line: str
    made_ms: int
    records_lost: int
    records_lost_at_most: int | None
    seconds_lost: float | None
    records_read_again: int
    unread_backlog: int
    groups: int
    groups_unseen: int
    groups_proven: int | None = None
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FlowSummary:
    """State, lag and loss forecast of one flow.

    ``looked_ms`` is the time of the look; ``heard_ms`` when the source last answered a slot
    (0: unknown). ``groups`` counts those with a checkpoint. ``lag`` is in source offsets.
    ``lag_at_ms`` is the time of ``lag`` if a cluster did not answer the latest look (0: unknown).
    ``measured`` is the newest window of the whole flow; None while a cluster or the replicator is
    silent. ``error`` is why the latest look failed, without a forecast. Then all fields except
    ``state`` and ``reasons`` are from the last successful look.
    """

    flow: str
    source: str
    target: str
    state: State
    reasons: tuple[Reason, ...]
    looked_ms: int
    heard_ms: int
    topics: int
    partitions: int
    groups: int
    lag: int
    replicator: ReplicatorRow | None = None
    measured: Measured | None = None
    forecast: ForecastLine | None = None
    error: str = ""
    lag_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic of a flow.

    ``reported`` of its ``partitions`` have a known position, ``going_on`` are being copied.
    ``groups`` have a checkpoint in the topic.
    ``copied``: offsets that the log of the remote topic still holds, including markers of claims.
    ``measured`` is its newest window; the REST API omits one older than five minutes.
    """

    topic: str
    remote_topic: str
    state: State
    reasons: tuple[Reason, ...]
    partitions: int
    reported: int
    groups: tuple[str, ...]
    copied: int
    lag: int
    measured: Measured | None = None
    going_on: int = 0


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group of a flow, and whether its checkpoints let it resume without the source.

    ``checkpoint_ms`` is the time as of which its position is known.
    ``records_read_again`` is the sum over its partitions: ``by_commits`` on the source since the
    checkpoint, else its unread backlog.
    ``records_skipped`` are those that the target no longer holds.
    ``followers`` counts clients that follow routes on the target.
    ``can_go_on`` is None without a checkpoint or after a failed look; ``reason`` is why not.
    ``works_there``: its route leads to the target already, as after a move. The opposite flow then
    reports whether it can resume.
    """

    group: str
    partitions: int
    checkpoint_ms: int | None
    records_read_again: int
    records_skipped: int
    followers: int
    can_go_on: bool | None
    reason: str
    proof: str
    works_there: bool = False
    by_commits: bool = False


@dataclass(frozen=True, slots=True)
class PositionRow:
    """Position of one group in one partition on the source, and its position after a move.

    Offsets are the next to read. Log ends are as of the last look; None: unknown.
    ``committed``, ``target_committed`` are its commits on each side now; None: nothing committed,
    or unknown (``GroupDetail.unread``).
    ``checkpointed`` is the source offset of its checkpoint; None: unknown, as a move or group sync
    has since written the offset on the target only.
    ``resume`` is the target offset at which it would resume.
    ``records_read_again`` are the offsets from ``checkpointed`` to ``committed`` if both are known,
    without those it has read since its last commit. Else it is an upper bound: all that the target
    held after the checkpoint at the last look, plus what was read since.
    ``lag`` is from ``committed`` to the source's log end, ``to_read`` from ``resume`` to the
    target's.
    """

    topic: str
    partition: int
    direction: str
    committed: int | None
    checkpointed: int | None
    target_topic: str
    resume: int | None
    target_committed: int | None
    records_read_again: int
    records_skipped: int
    state: str
    reason: str
    lag: int | None = None
    to_read: int | None = None

    @property
    def by_commits(self) -> bool:
        """True if both the committed offset and the checkpoint on the source are known."""
        return self.committed is not None and self.checkpointed is not None


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """A group with its partitions; ``unread`` gives by alias why its offsets are unknown.

    ``lag`` is on the source, in offsets after its newest known commits; None: unknown.
    """

    row: GroupRow
    positions: tuple[PositionRow, ...]
    unread: dict[str, str] = field(default_factory=dict)
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A checkpoint as it is on the target."""

    group: str
    topic: str
    partition: int
    remote_topic: str
    upstream_offset: int | None
    downstream_offset: int
    checkpoint_ms: int | None


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a flow that operators must know.

    ``kind`` is ``loss``, ``strange``, ``re-created``, ``decision``, ``stopped``, ``waiting``,
    ``paused``, ``replicator``, ``drill``, ``move`` or ``state``. ``state`` is a state change of the
    flow, or of a stopped topic, that the service has seen since it started.
    ``about`` is the id of the drill or move.
    """

    time_ms: int
    kind: str
    flow: str
    topic: str
    partition: int | None
    text: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class RemoteTopic:
    """A topic and its copy."""

    source: str
    target: str
    topic: str
    remote_topic: str
    partitions: int

    @property
    def flow(self) -> Flow:
        return Flow(self.source, self.target)


@dataclass(frozen=True, slots=True)
class Point:
    """One window of one metric, for a chart.

    Rates and lags are aggregated over partitions: ``sum`` is the total of the topic or flow,
    ``min`` and ``max`` are those of a partition. Latencies are over records or checkpoints.
    """

    start_ms: int
    end_ms: int
    min: float
    max: float
    avg: float
    sum: float
    count: int


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """The windows of one metric of a flow, or of one topic in it, by time; windows may overlap."""

    source: str
    target: str
    topic: str
    remote_topic: str
    metric: str
    unit: str
    windows: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class MoveRow:
    """Request, progress and cost of one move.

    ``ok`` and ``result`` are from its report, None before.
    ``rto_seconds`` of a released move is the time for which it held its clients.
    ``problems`` is why it was released, or why a planned move cannot start.
    ``carrier`` is the process of a running move, with its last known wait.
    ``ended``: the move is over, since ``ended_ms``.
    """

    move_id: str
    operation: str
    mode: str
    source: str
    target: str
    created_ms: int
    step: str
    ended: bool
    ok: bool | None
    topics: int
    groups: int
    result: MoveResult | None
    rto_seconds: float | None
    problems: tuple[str, ...]
    signed: bool
    carrier: Carrier | None = None
    ended_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step that a move has reached, with the time by the clock of the host that ran it."""

    step: str
    time_ms: int


@dataclass(frozen=True, slots=True)
class MoveDetail:
    """A move with its steps, groups and the plan's summary."""

    row: MoveRow
    summary: str
    steps: tuple[StepRow, ...]
    group_names: tuple[str, ...]
    blocking: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DrillRow:
    """One rehearsal of a failover."""

    drill_id: str
    flow: str
    state: str
    time_ms: int
    ok: bool
    groups: int
    proven: int
    rto_seconds: float
    problems: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """A Kafka cluster with the watched flows into and out of it.

    ``measured`` holds the newest window of each of these flows.
    ``missing`` gives by target the reason why flows may be missing.
    """

    cluster_id: str
    alias: str
    incoming: tuple[str, ...]
    outgoing: tuple[str, ...]
    looked_ms: int
    measured: dict[str, Measured]
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Problem:
    """An error, as ``application/problem+json`` (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str


@dataclass(frozen=True, slots=True)
class TargetHealth:
    """Time of the last look at a target (0: none yet), and why it failed, if it did."""

    target: str
    looked_ms: int
    error: str


@dataclass(frozen=True, slots=True)
class ServiceHealth:
    """Readiness of the service: it is ``ready`` after a look at each target."""

    ready: bool
    targets: tuple[TargetHealth, ...]
