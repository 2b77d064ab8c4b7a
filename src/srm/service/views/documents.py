"""What the REST API says: the shapes of its answers. Times are epoch milliseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from srm.domain.names.topics import Flow
from srm.domain.text.reason import Reason
from srm.engine.flows.health import State as HealthState
from srm.engine.flows.status import PartitionState
from srm.service.views.series import Measured

State = HealthState | Literal["UNKNOWN"]
"""That of a flow; UNKNOWN: it cannot be looked at now, or could not yet."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Page(Generic[_T]):
    """A part of a list: ``total`` counts what matches, ``offset`` is the first of ``items``.

    ``missing`` says of which targets nothing is in it, and why: then the answer is partial.
    """

    items: tuple[_T, ...]
    total: int
    offset: int
    missing: dict[str, str]


@dataclass(frozen=True, slots=True)
class ReplicatorRow:
    """Who copies a flow; ``heartbeat_ms`` is its last sign of life."""

    application_id: str
    host: str
    heartbeat_ms: int
    alive: bool
    slots: int
    slots_alive: int


@dataclass(frozen=True, slots=True)
class ForecastLine:
    """What it would cost if the source died now, in one line and the figures behind it.

    ``records_lost`` were not copied when the source last answered, ``records_lost_at_most`` adds
    what it may have taken since; None: it cannot be known. ``records_read_again`` at most.
    """

    line: str
    made_ms: int
    records_lost: int
    records_lost_at_most: int | None
    seconds_lost: float | None
    records_read_again: int
    groups: int
    groups_unseen: int
    groups_proven: int | None = None
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FlowSummary:
    """One flow: is it well, how far behind is it, what would its source's death cost.

    ``looked_ms`` is when this was seen, ``heard_ms`` when the source last answered a slot (0: not
    known), ``lag`` the source offsets still to copy; ``error`` says why the latest look failed:
    all but ``state`` and ``reasons`` is then what the last look that succeeded has found.
    ``lag_at_ms``: the source did not answer that look, ``lag`` is as of this moment (0: not known).
    ``groups`` are those with a checkpoint. ``measured`` is the newest window of the whole flow.
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

    @property
    def known_ms(self) -> int | None:
        """As of when the lag is known, where that is not now; 0: nobody knows."""
        if self.lag_at_ms is not None:
            return self.lag_at_ms
        return self.looked_ms if self.error and self.looked_ms else None


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic of a flow; ``groups`` are those that have a checkpoint in it.

    Of its ``partitions`` ``reported`` have a known position, and ``going_on`` are copied now.
    ``measured`` is its newest window; the REST API leaves it out where it is older than five
    minutes.
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
class PartitionRow:
    """One partition: what is next to read on the source and to write on the target, and its state.

    ``source_end`` is the end of the source's log, None where it could not be asked. ``since_ms`` is
    when the state began, 0: not known. ``reason`` says why, ``action`` what to do about it.
    ``notes`` are losses and what was strange.
    """

    topic: str
    partition: int
    state: PartitionState
    source_next: int | None
    source_end: int | None
    target_next: int | None
    lag: int
    since_ms: int
    reason: str
    notes: tuple[str, ...]
    action: str = ""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group of a flow, by its checkpoints: where it would go on now without its source.

    ``checkpoint_ms`` is as of when its place is known. ``records_read_again`` at most, or the sum
    of its partitions where those are with it; ``records_skipped`` are those the target holds no
    more. ``followers`` are clients that follow routes on the target. ``can_go_on`` is None where no
    checkpoint says, or the latest look at the flow failed; ``reason`` says why not.
    ``works_there``: its route says that it works on the target already, as after a move; what can
    go on from there is told of the opposite flow.
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


@dataclass(frozen=True, slots=True)
class PositionRow:
    """Where one group stood on the source, and would go on on the target, in one partition.

    All are next to read: ``committed`` and ``target_committed`` what the group has committed on
    each side now (None: nothing, or not known, see ``GroupDetail.unread``), ``checkpointed`` where
    it stood on the source by its checkpoint (None: the target alone was written since), ``resume``
    where it would go on. ``records_read_again`` are the offsets from ``checkpointed`` to
    ``committed`` where both are known, and what it has read since its last commit comes on top;
    else all that the target held behind the checkpoint at the last look, and what was read
    since, at most. ``lag`` are the offsets from
    ``committed`` to the end of the source's log, ``to_read`` those from ``resume`` to the end of
    the target's, both as that log was at the last look (None: not known).
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
        """Whether it is known how far the group has gone on behind its checkpoint."""
        return self.committed is not None and self.checkpointed is not None


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """A group with its partitions; ``unread``: why offsets of an alias's cluster are not known."""

    row: GroupRow
    positions: tuple[PositionRow, ...]
    unread: dict[str, str] = field(default_factory=dict)

    @property
    def by_commits(self) -> bool:
        """Whether what is read again is known by what the group has committed on the source."""
        return bool(self.positions) and all(one.by_commits for one in self.positions)

    @property
    def lag(self) -> int | None:
        """Offsets that it has not committed yet on the source; None: not known of a partition."""
        found = [one.lag for one in self.positions if one.lag is not None]
        return sum(found) if found and len(found) == len(self.positions) else None


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
    """Something that happened to a flow and that people must know of.

    ``kind`` is ``loss``, ``strange``, ``re-created``, ``decision``, ``stopped``, ``waiting``,
    ``paused``, ``replicator``, ``drill``, ``move``, or ``state`` for another state of the flow, or
    of a topic that was stopped, as the service has seen it since it runs; ``about`` is the id of
    that drill or move.
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
        """The flow that copies it."""
        return Flow(self.source, self.target)


@dataclass(frozen=True, slots=True)
class Point:
    """One window of one metric, for a chart.

    Rates and lags are over partitions: ``sum`` is that of the whole topic or flow, ``min`` and
    ``max`` are the least and the greatest of any partition. Latencies are over records or
    checkpoints.
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
    """One move: what was wanted, how far it is, what it cost.

    ``rpo_records`` and the others are None until its report has them; it is between
    ``rpo_at_least`` and ``rpo_at_most``. ``ok`` is that of the report, None before there is one.
    ``ended`` says that nothing more happens, ``ended_ms`` since when. Of a move that was given up
    ``rto_seconds`` is how long it held its clients, and ``problems`` says why; of one that is only
    planned it says what keeps it from beginning. ``waits`` is what one under way was last seen to
    wait for, at ``waits_ms`` (None: nobody has looked).
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
    rpo_records: int | None
    rpo_at_least: int | None
    rpo_at_most: int | None
    rpo_seconds: float | None
    rto_seconds: float | None
    re_read: int | None
    problems: tuple[str, ...]
    signed: bool
    waits: tuple[str, ...] = ()
    waits_ms: int | None = None
    ended_ms: int | None = None

    @property
    def rpo(self) -> tuple[int | None, int | None]:
        """Bounds of the records lost, equal where they are known."""
        return self.rpo_at_least, self.rpo_at_most


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step that a move has reached, and when (by the clock of whoever ran it)."""

    step: str
    time_ms: int


@dataclass(frozen=True, slots=True)
class MoveDetail:
    """A move with its steps, the plan's summary and who is held now."""

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


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """A Kafka cluster by its id: its alias, and the flows into and out of it that are watched.

    ``measured`` are the newest windows of those flows, by flow. ``missing`` says of which targets
    flows may be missing, and why.
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
    """When a target was last looked at (0: not yet), and why that failed, if it did."""

    target: str
    looked_ms: int
    error: str


@dataclass(frozen=True, slots=True)
class ServiceHealth:
    """Whether the service has seen all its targets."""

    ready: bool
    targets: tuple[TargetHealth, ...]
