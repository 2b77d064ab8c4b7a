"""Frozen snapshots of target clusters, and rows of the REST API and the pages from them; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from srm.config.model import FlowConfig
from srm.domain.groups.translation import UNKNOWN_LOG
from srm.domain.moves.disaster import Drill
from srm.domain.moves.plan import GroupPlan, MovePlan, PartitionMove, position_problem
from srm.domain.moves.progress import ENDED, Carrier, MoveProgress
from srm.domain.moves.revisions import KeptReport
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.text.amount import Reason
from srm.engine.metrics.metrics import is_fresh
from srm.engine.moves.facts import MoveFacts
from srm.engine.status.observing import FlowState
from srm.engine.status.status import (
    GOING_ON,
    NO_CHECKPOINT,
    FlowForecast,
    group_proof,
    offsets_left,
    topic_health,
    total_lag,
)
from srm.service.views import documents
from srm.service.views.series import Measured


@dataclass(frozen=True, eq=False)
class FlowLook:
    """One flow at its latest look, which failed if there is an ``error``.

    ``view`` is the result of the last successful look, None before, at ``looked_ms``.
    ``measured`` are the newest windows by topic; the empty name is the flow itself.
    ``changes`` are events of its state, ``healed`` of topics no longer stopped; the newest last.
    """

    flow: Flow
    config: FlowConfig
    view: FlowState | None = None
    looked_ms: int = 0
    error: str = ""
    measured: Mapping[str, Measured] = field(default_factory=dict)
    changes: tuple[documents.Event, ...] = ()
    healed: tuple[documents.Event, ...] = ()

    @property
    def is_current(self) -> bool:
        """False while source, target or replicator is silent: no rate describes the present."""
        return not self.error and not (self.view is not None and self.view.status.idle)

    @property
    def silent_since_ms(self) -> int | None:
        """Last answer of the cluster that did not answer the look; None: both did, 0: unknown."""
        if self.error:
            return self.looked_ms
        is_away = self.view is not None and self.view.status.source_error
        return self.view.status.heard_ms if self.view is not None and is_away else None

    def now(self, topic: str = "") -> Measured | None:
        """Return the newest window of a topic or of the flow; None while nothing is copied."""
        return self.measured.get(topic) if self.is_current else None


@dataclass(frozen=True, eq=False)
class MoveLook:
    """Records of one move on a cluster, and the process that carries it, as of its heartbeat."""

    plan: MovePlan
    progress: MoveProgress
    report: KeptReport | None = None
    carrier: Carrier | None = None

    @property
    def waits(self) -> tuple[str, ...]:
        return self.carrier.waits if self.carrier else ()


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


_Row = TypeVar("_Row")


def row_of(of: type[_Row], source: object, **values: object) -> _Row:
    """Return a row of these values; each other field is the attribute of the source."""
    names = of.__dataclass_fields__.keys() - values.keys()  # type: ignore[attr-defined]
    return of(**{name: getattr(source, name) for name in names}, **values)


def summary(look: FlowLook) -> documents.FlowSummary:
    """Summarize a flow; its state is UNKNOWN after a failed look."""
    flow, view = look.flow, look.view
    if view is None:
        unknown = Reason(look.error or "not looked at yet")
        return documents.FlowSummary(
            flow=str(flow),
            source=flow.source,
            target=flow.target,
            state="UNKNOWN",
            reasons=(unknown,),
            looked_ms=0,
            heard_ms=0,
            topics=0,
            partitions=0,
            groups=0,
            lag=0,
            error=look.error,
        )
    status = view.status
    state: documents.State = "UNKNOWN" if look.error else view.health.state
    reasons = view.health.reasons
    if look.error:
        action = f"check the brokers of {flow.target} and the connection to them"
        reasons = (Reason(f"latest look failed: {look.error}", action),)
    return documents.FlowSummary(
        flow=str(flow),
        source=flow.source,
        target=flow.target,
        state=state,
        reasons=reasons,
        looked_ms=look.looked_ms,
        heard_ms=status.heard_ms,
        topics=len(status.topics),
        partitions=sum(topic.partitions for topic in status.topics),
        groups=len(view.groups),
        lag=status.remaining,
        replicator=_replicator(view, is_known=not look.error),
        measured=look.now(),
        forecast=None if status.standing is None or look.error else forecast_line(status.standing),
        error=look.error,
        lag_at_ms=look.silent_since_ms,
    )


def _replicator(view: FlowState, *, is_known: bool) -> documents.ReplicatorRow | None:
    driver = view.status.driver
    if driver is None:
        return None
    slots = view.status.slots
    return row_of(
        documents.ReplicatorRow,
        driver,
        application_id=driver.application_id or driver.driver,
        heartbeat_ms=view.status.time_ms - driver.age_ms,
        alive=driver.alive if is_known else None,
        slots=len(slots),
        slots_alive=sum(slot.alive for slot in slots) if is_known else None,
    )


def forecast_line(current: FlowForecast) -> documents.ForecastLine:
    forecast, proof = current.forecast, current.proof
    return documents.ForecastLine(
        line=current.line,
        made_ms=forecast.made_ms,
        records_lost=forecast.not_copied,
        records_lost_at_most=forecast.at_most,
        seconds_lost=forecast.seconds,
        records_read_again=forecast.re_read - forecast.unread_backlog,
        unread_backlog=forecast.unread_backlog,
        groups=len(forecast.groups),
        groups_unseen=len(forecast.unseen),
        groups_proven=None if proof is None else proof.proven,
        unknown=tuple(line for topic in forecast.topics for line in topic.unknown),
    )


def topic_rows(look: FlowLook) -> tuple[documents.TopicRow, ...]:
    view = look.view
    if view is None:
        return ()
    groups = defaultdict[str, set[str]](set)
    for plan in view.groups:
        for position in plan.positions:
            if position.direction == "forward":
                groups[position.topic].add(plan.group)
    healths = ((topic, topic_health(topic, view.status)) for topic in view.status.topics)
    return tuple(
        row_of(
            documents.TopicRow,
            topic,
            state="UNKNOWN" if look.error else health.state,
            reasons=() if look.error else health.reasons,
            groups=tuple(sorted(groups[topic.topic])),
            lag=topic.remaining,
            measured=look.now(topic.topic),
            going_on=sum(one.state in GOING_ON for one in view.partitions.get(topic.topic, ())),
        )
        for topic, health in healths
    )


def as_of(rows: Iterable[documents.TopicRow], now_ms: int) -> list[documents.TopicRow]:
    """Remove windows that are too old to describe the present."""
    return [
        row
        if row.measured is None or is_fresh(row.measured.end_ms, now_ms)
        else replace(row, measured=None)
        for row in rows
    ]


def figure(row: documents.TopicRow, metric: str, statistic: str) -> float:
    """Return the value by which topics are sorted; a missing value sorts lowest."""
    found = None if row.measured is None else row.measured.figures(metric)
    return float(getattr(found, statistic)) if found is not None and found.count else -1.0


def group_rows(look: FlowLook) -> tuple[documents.GroupRow, ...]:
    outlook = None if look.view is None else look.view.outlook
    if outlook is None:
        return ()
    return tuple(_group_row(plan, outlook, look.error) for plan in outlook.plans)


def _group_row(plan: GroupPlan, outlook: MoveFacts, error: str) -> documents.GroupRow:
    """Return the row of a group; after a failed look it is unknown whether it could resume."""
    known, request = outlook.known_places(plan), outlook.request
    problems = (position_problem(plan.group, one, request) for one in plan.positions)
    first = next((one.text for one in problems if one), "")
    can_go_on, reason = (not first, first) if known else (None, NO_CHECKPOINT)
    return documents.GroupRow(
        plan.group,
        len(known),
        outlook.away.stamp(plan.group)[0],
        outlook.read_again(plan),
        plan.total_skipped,
        outlook.followers(plan.group),
        None if error else can_go_on,
        f"latest look failed: {error}" if error else reason,
        group_proof(plan.group, outlook.away.proof)[1],
        outlook.works_there(plan.group),
        outlook.by_commits(plan),
    )


def group_detail(
    look: FlowLook,
    group: str,
    commits: GroupCommits | None = None,
    opposite: FlowLook | None = None,
) -> documents.GroupDetail | None:
    """Return one group with its partitions, None if no checkpoint names it.

    ``commits`` are its offsets on both sides, if fetched; ``opposite`` knows the log ends.
    """
    view, commits = look.view, commits or GroupCommits()
    outlook = None if view is None else view.outlook
    if view is None or outlook is None:
        return None
    plan = _plan_of(outlook, group)
    if plan is None:
        return None
    positions = tuple(
        _position_row(
            one, commits, outlook, outlook.read_again_of(group, one), _ends(view, opposite, one)
        )
        for one in plan.positions
        if one.lag or one.target in outlook.last_places(group)  # else there is nothing to read
    )
    sides = {look.flow.source: commits.source, look.flow.target: commits.target}
    unread = {alias: side.error for alias, side in sides.items() if side.error}
    again = sum(position.records_read_again for position in positions)
    counted = bool(positions) and all(one.by_commits for one in positions)
    row = replace(
        _group_row(plan, outlook, look.error), records_read_again=again, by_commits=counted
    )
    lag = group_lag(look, group, opposite, commits.source.offsets)
    return documents.GroupDetail(row, positions, unread, lag)


def _plan_of(outlook: MoveFacts, group: str) -> GroupPlan | None:
    return next((plan for plan in outlook.plans if plan.group == group), None)


def group_lag(
    look: FlowLook,
    group: str,
    opposite: FlowLook | None,
    commits: Mapping[TopicPartition, int] | None = None,
) -> int | None:
    """Return the source offsets after the newest known commits of a group; None: not known.

    ``commits``: on the source, if there are newer ones than those of the look.
    """
    view, places = look.view, list[tuple[int | None, int | None]]()
    if view is None or view.outlook is None or view.status.source_error:
        return None
    outlook, plan = view.outlook, _plan_of(view.outlook, group)
    commits, last = commits or outlook.away.commits.get(group, {}), outlook.last_places(group)
    for one in plan.positions if plan else ():
        known = commits.get(TopicPartition(one.topic, one.partition)), one.committed
        newest = max((offset for offset in known if offset is not None), default=None)
        if newest is not None or one.target in last:
            places.append((newest, _ends(view, opposite, one)[0]))
    return total_lag(places)


def _ends(
    view: FlowState, opposite: FlowLook | None, one: PartitionMove
) -> tuple[int | None, int | None]:
    """Return where the source's log ended at the last look, and the copy of it; None: unknown."""
    for partition in view.partitions.get(one.topic, ()):
        if partition.partition == one.partition:
            return partition.source_end, partition.source_next
    back = None if opposite is None or opposite.view is None else opposite.view.outlook
    original = None if back is None else _end(back, TopicPartition(one.topic, one.partition))
    return original, original  # the original of a replica is on the target


def _end(outlook: MoveFacts, place: TopicPartition) -> int | None:
    log = outlook.target.logs.get(place, UNKNOWN_LOG)
    return None if log is UNKNOWN_LOG else log.end


def _position_row(
    one: PartitionMove,
    commits: GroupCommits,
    outlook: MoveFacts,
    read_again: int,
    source: tuple[int | None, int | None],
) -> documents.PositionRow:
    end, copied = source
    committed = commits.source.offsets.get(TopicPartition(one.topic, one.partition))
    if committed is not None and one.committed is not None:
        # Must match the offsets shown next to it; the copy's size is as of the last look.
        read_again = max(0, committed - one.committed)
    elif copied is not None:
        # Records that the group has read since that look were copied after it, too.
        read_again += offsets_left(copied, committed) or 0
    return row_of(
        documents.PositionRow,
        one,
        committed=committed,
        checkpointed=one.committed,
        target_committed=commits.target.offsets.get(one.target),
        records_read_again=read_again,
        records_skipped=one.skipped,
        lag=offsets_left(committed, end),
        to_read=offsets_left(one.resume, _end(outlook, one.target)),
    )


def checkpoint_rows(look: FlowLook) -> Iterator[documents.CheckpointRow]:
    view = look.view
    if view is None or view.outlook is None:
        return
    outlook = view.outlook
    for plan in outlook.plans:
        places = outlook.last_places(plan.group)
        for one in plan.positions:
            if (last := places.get(one.target)) is not None:
                yield documents.CheckpointRow(
                    plan.group,
                    one.topic,
                    one.partition,
                    one.target_topic,
                    last.upstream_offset,
                    last.offset,
                    outlook.away.stamp(plan.group)[0],
                )


def move_row(look: MoveLook) -> documents.MoveRow:
    plan, report = look.plan, look.report.report if look.report else None
    request, progress = plan.request, look.progress
    ended = progress.step in ENDED
    return row_of(
        documents.MoveRow,
        request,
        ok=report.ok if report else None,
        result=report.result if report else None,
        move_id=plan.move_id,
        created_ms=plan.created_ms,
        step=progress.step,
        ended=ended,
        topics=len(plan.topics),
        groups=len(plan.groups),
        rto_seconds=report.rto_seconds if report and progress.is_decided else progress.held_seconds,
        problems=_move_problems(look),
        signed=look.report is not None and look.report.signed.signature is not None,
        carrier=look.carrier,
        ended_ms=progress.times_ms.get(progress.step) if ended else None,
    )


def is_running(move: documents.MoveRow) -> bool:
    """Return True for a move that has started, and so holds or moves clients, and not ended."""
    return not move.ended and move.step != "planned"


def is_blocked(look: MoveLook) -> bool:
    """Return True for a planned move that cannot start; a started move is not blocked."""
    return look.progress.step == "planned" and bool(look.plan.blocking)


def _move_problems(look: MoveLook) -> tuple[str, ...]:
    if look.report is not None:
        return look.report.report.problems
    if is_blocked(look):
        return look.plan.blocking
    given_up = look.progress.step == "released" and look.progress.reason
    return (look.progress.reason,) if given_up else ()


def move_detail(look: MoveLook) -> documents.MoveDetail:
    times = {"planned": look.plan.created_ms, **look.progress.times_ms}
    steps = tuple(
        documents.StepRow(step, at) for step, at in sorted(times.items(), key=lambda item: item[1])
    )
    return row_of(
        documents.MoveDetail,
        look.plan,
        row=move_row(look),
        summary=look.plan.summary(),
        steps=steps,
    )


def drill_row(drill: Drill) -> documents.DrillRow:
    return row_of(documents.DrillRow, drill, groups=len(drill.groups), problems=drill.all_problems)
