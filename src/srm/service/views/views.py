"""Data of all answers: the latest look at each target that this service watches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from srm.config.model import Config
from srm.domain.flow_state.replication_records import PartitionNotes
from srm.domain.moves.disaster import Drill
from srm.domain.moves.revisions import KeptReport
from srm.domain.names.topics import Flow
from srm.domain.text.amount import amount
from srm.engine.status.observing import FlowState
from srm.engine.status.status import IN_TROUBLE
from srm.errors import ElsewhereError, NotFoundError, UnavailableError
from srm.service.views import flow_rows
from srm.service.views.documents import (
    ClusterInfo,
    DrillRow,
    Event,
    FlowSummary,
    GroupRow,
    MetricSeries,
    MoveRow,
    Point,
    RemoteTopic,
    TopicRow,
)
from srm.service.views.flow_rows import FlowLook, MoveLook, TargetLook, is_blocked
from srm.service.views.series import METRICS, Series, touching
from srm.service.views.watching import TargetWatch, end_all, watched_flows

_ALL_MS = 900_000
"""Longest range that returns all windows; longer ones leave out overlapping windows."""
_T = TypeVar("_T")


class Views:
    """All targets that this service watches, by default those of the configuration."""

    def __init__(self, config: Config, watches: Iterable[TargetWatch] | None = None) -> None:
        self.config = config
        found = watches or (TargetWatch(config, *each) for each in watched_flows(config).items())
        self._watches = {watch.alias: watch for watch in found}
        self._rows: dict[object, tuple[FlowLook, tuple[object, ...]]] = {}
        self._only: dict[str, Views] = {}

    def only(self, target: str) -> Views:
        if target not in self._only:
            self._only[target] = Views(self.config, [self._watch(target)])
        return self._only[target]

    def start(self) -> None:
        for watch in self._watches.values():
            watch.start()

    def close(self) -> None:
        end_all(self._watches.values())

    def refresh(self, target: str) -> None:
        self._watch(target).refresh()

    @property
    def watched_targets(self) -> tuple[str, ...]:
        return tuple(self._watches)

    @property
    def targets(self) -> tuple[TargetLook, ...]:
        return tuple(watch.look for watch in self._watches.values())

    def series(self, target: str) -> Series:
        return self._watch(target).series

    def look(self, flow: Flow) -> FlowLook:
        found = self._watch(flow.target).look.flows.get(flow)
        if found is None:
            known = ", ".join(str(look.flow) for look in self.looks()) or "none"
            raise NotFoundError(f"flow {flow} is not watched here; flows: {known}")
        return found

    def looks(self) -> Iterator[FlowLook]:
        """Return the latest look at each flow, by name."""
        found = [look for target in self.targets for look in target.flows.values()]
        yield from sorted(found, key=lambda look: look.flow)

    def find(self, flow: Flow) -> FlowLook | None:
        """Return the latest look at a flow, None if it is not watched."""
        return next((look for look in self.looks() if look.flow == flow), None)

    def flows(self) -> tuple[FlowSummary, ...]:
        return tuple(flow_rows.summary(look) for look in self.looks())

    def last_look(self, flow: Flow) -> tuple[FlowLook, FlowState]:
        """Return the latest look at a flow and its last successful view; SrmError without one."""
        look = self.look(flow)
        if look.view is None:
            raise UnavailableError(f"flow {flow}: {look.error or 'not looked at yet; retry'}")
        return look, look.view

    def topics_of(self, look: FlowLook) -> tuple[TopicRow, ...]:
        """Return the topics of a flow; empty before its first successful look."""
        return self._reuse(flow_rows.topic_rows, look)

    def groups_of(self, look: FlowLook) -> tuple[GroupRow, ...]:
        """Return the groups of a flow; empty before its first successful look."""
        return self._reuse(flow_rows.group_rows, look)

    def topics(self, flow: Flow) -> tuple[TopicRow, ...]:
        return self.topics_of(self.last_look(flow)[0])

    def groups(self, flow: Flow) -> tuple[GroupRow, ...]:
        return self.groups_of(self.last_look(flow)[0])

    def topic(self, flow: Flow, name: str) -> TopicRow:
        """Return a topic by its name on either side."""
        for row in self.topics(flow):
            if name in {row.topic, row.remote_topic}:
                return row
        what = f"topic {name!r} is not copied by {flow}"
        raise NotFoundError(what, f"see /v2/why/topic/{name}")

    def remote_topics(self) -> tuple[RemoteTopic, ...]:
        return tuple(
            RemoteTopic(flow.source, flow.target, row.topic, row.remote_topic, row.partitions)
            for flow, look in ((look.flow, look) for look in self.looks())
            for row in self.topics_of(look)
            if row.reported or row.copied  # else the remote topic does not exist
        )

    def events(self, flow: Flow) -> tuple[Event, ...]:
        target = self._watch(flow.target).look
        return events(self.look(flow), target.moves, target.drills)

    def moves(self) -> tuple[MoveRow, ...]:
        """Return all moves, the newest first; the furthest record on any cluster counts."""
        rows = map(flow_rows.move_row, self.move_looks().values())
        return tuple(sorted(rows, key=lambda row: (-row.created_ms, row.move_id)))

    def move_looks(self) -> dict[str, MoveLook]:
        """Return all moves by id; the furthest record on any cluster counts."""
        found: dict[str, MoveLook] = {}
        for look in (move for target in self.targets for move in target.moves):
            known = found.get(look.plan.move_id)
            if known is None or _rank(look) > _rank(known):
                found[look.plan.move_id] = look
        return found

    def move(self, move_id: str) -> MoveLook:
        found = self.move_looks().get(move_id)
        if found is None:
            raise ElsewhereError(f"move {move_id!r} is not known on {', '.join(self._watches)}")
        return found

    def report(self, move_id: str) -> KeptReport:
        found = self.move(move_id).report
        if found is None:
            raise NotFoundError(f"move {move_id!r} has no report yet")
        return found

    def drills(self) -> tuple[DrillRow, ...]:
        found = [flow_rows.drill_row(drill) for look in self.targets for drill in look.drills]
        return tuple(sorted(found, key=lambda row: (-row.time_ms, row.drill_id)))

    def metric(self, flow: Flow, topic: str, metric: str, from_ms: int, to_ms: int) -> MetricSeries:
        remote = ""
        if topic:
            row = self.topic(flow, topic)
            topic, remote = row.topic, row.remote_topic
        windows = self.series(flow.target).between(flow, topic, from_ms, to_ms)
        if to_ms - from_ms > _ALL_MS:
            windows = touching(windows)
        return MetricSeries(
            flow.source,
            flow.target,
            topic,
            remote,
            metric,
            METRICS[metric].unit,
            tuple(
                Point(w.start_ms, w.end_ms, of.min, of.max, of.avg, of.sum, of.count)
                for w in windows
                for of in [w.figures(metric)]
            ),
        )

    def cluster(self, cluster_id: str) -> ClusterInfo:
        """Return the ids of a watched cluster and the time of its look, without its flows."""
        for one in self.targets:
            if cluster_id in {one.cluster_id, one.alias}:
                return ClusterInfo(one.cluster_id, one.alias, (), (), one.looked_ms, {})
        known = ", ".join(f"{t.alias} ({t.cluster_id or 'id not known yet'})" for t in self.targets)
        raise ElsewhereError(f"cluster {cluster_id!r} is not watched here; clusters: {known}")

    def _watch(self, target: str) -> TargetWatch:
        try:
            return self._watches[target]
        except KeyError:
            why = f"cluster {target!r} is not watched here, only {', '.join(self._watches)}"
            raise ElsewhereError(why, target) from None

    def _reuse(self, make: Callable[[FlowLook], tuple[_T, ...]], look: FlowLook) -> tuple[_T, ...]:
        known = self._rows.get((make, look.flow))
        if known is None or known[0] is not look:
            known = self._rows[make, look.flow] = (look, make(look))
        return known[1]  # type: ignore[return-value]


def _rank(look: MoveLook) -> tuple[object, ...]:
    carrier, report = look.carrier, look.report
    return (
        *look.progress.rank,
        0 if report is None else report.report.revision,
        carrier.heartbeat_ms if carrier else 0,  # its notes are on the target alone
    )


def events(look: FlowLook, moves: Iterable[MoveLook], drills: Iterable[Drill]) -> tuple[Event, ...]:
    flow = look.flow
    found = [
        *(() if look.view is None else _of_view(str(flow), look.view)),
        *look.changes,
        *look.healed,
        *_of_moves(flow, moves),
        *_of_drills(str(flow), drills),
    ]
    return tuple(sorted(found, key=lambda one: (-one.time_ms, one.topic, one.partition or 0)))


def _of_view(flow: str, view: FlowState) -> Iterator[Event]:
    for partitions in view.partitions.values():
        for one in partitions:
            for note in one.notes:
                for kind, text in _of_note(note):
                    yield Event(note.time_ms, kind, flow, one.topic, one.partition, text)
            if one.state in IN_TROUBLE and one.since_ms:
                text = one.reason or one.state
                yield Event(one.since_ms, one.state, flow, one.topic, one.partition, text)
    yield from _of_replicator(flow, view)


def _of_note(note: PartitionNotes) -> Iterator[tuple[str, str]]:
    if note.decision:
        yield "decision", note.text
    elif note.lost:
        yield "loss", note.text
    if note.strange and not note.decision:
        yield "strange", note.strange
    if note.begins is not None:
        text = f"the topic was re-created: its copy begins at target offset {note.begins}"
        yield "re-created", text


def _of_replicator(flow: str, view: FlowState) -> Iterator[Event]:
    status = view.status
    if status.pause is not None:
        text = f"paused by {status.pause.by}: {status.pause.reason}"
        yield Event(status.pause.time_ms, "paused", flow, "", None, text, status.pause.move_id)
    driver = status.driver
    if driver is None:
        return
    if not driver.alive:
        word = "ended" if driver.ended else "sent its last heartbeat"
        text = f"the replicator on {driver.host} {word}"
        if driver.stopped_by:
            text = f"{driver.stopped_by} has stopped the replicator on {driver.host}"
        yield Event(status.time_ms - driver.age_ms, "replicator", flow, "", None, text)
    if driver.obeyed is not None:
        text = f"{driver.obeyed.by} requested a {driver.obeyed.action} of the replicator"
        yield Event(driver.obeyed.time_ms, "replicator", flow, "", None, text)
    if driver.started_ms:
        text = f"the replicator on {driver.host} started"
        yield Event(driver.started_ms, "replicator", flow, "", None, text)


def _of_moves(flow: Flow, moves: Iterable[MoveLook]) -> Iterator[Event]:
    for look in moves:
        request = look.plan.request
        if request.flow not in {flow, flow.reverse}:
            continue
        times = {"planned": look.plan.created_ms, **look.progress.times_ms}
        for step, time_ms in times.items():
            text = (
                f"{request.operation} {request.flow} of {amount(len(look.plan.groups), 'group')}: "
                f"{step} ({look.plan.move_id})"
            )
            if step == "released" and look.progress.reason:
                text = f"{text}: {look.progress.reason}"
            if step == "planned" and is_blocked(look):
                text = f"{text}, blocked: {look.plan.blocking[0]}"
            yield Event(time_ms, "move", str(request.flow), "", None, text, look.plan.move_id)


def _of_drills(flow: str, drills: Iterable[Drill]) -> Iterator[Event]:
    for drill in drills:
        if drill.flow == flow:
            result = f"{drill.proven} of {amount(len(drill.groups), 'group')} proven"
            text = f"drill {drill.drill_id} {drill.state}: {result}"
            yield Event(drill.time_ms, "drill", flow, "", None, text, drill.drill_id)
