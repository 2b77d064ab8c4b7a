"""Events of a flow that operators must know, newest first; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from srm.domain.flow_state.anomalies import PartitionNotes
from srm.domain.names.topics import Flow
from srm.domain.recovery.drill import Drill
from srm.domain.text.amount import amount, duration
from srm.engine.status.observing import FlowState
from srm.engine.status.status import IN_TROUBLE
from srm.service.views.documents import Event
from srm.service.views.move_rows import is_blocked
from srm.service.views.snapshots import FlowLook, Healed, MoveLook, StateChange


def events(look: FlowLook, moves: Iterable[MoveLook], drills: Iterable[Drill]) -> tuple[Event, ...]:
    """Return the events of one flow: its states, partitions, replicator, moves and drills."""
    flow = look.flow
    found = [
        *(() if look.view is None else _of_view(str(flow), look.view)),
        *(_of_change(str(flow), change) for change in look.changes),
        *(_of_healed(str(flow), healed) for healed in look.healed),
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


def _of_change(flow: str, change: StateChange) -> Event:
    text = f"{change.state}: {change.reason}" if change.reason else change.state
    if change.lasted_ms is not None:
        text += f" (was {change.former} for {duration(change.lasted_ms / 1000)})"
    return Event(change.time_ms, "state", flow, "", None, text)


def _of_healed(flow: str, healed: Healed) -> Event:
    lasted = healed.since_ms and f" for {duration((healed.time_ms - healed.since_ms) / 1000)}"
    text = f"no longer stopped (was{lasted or ''}: {healed.reason or 'stopped'})"
    return Event(healed.time_ms, "state", flow, healed.topic, None, text)


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
        yield Event(status.pause.time_ms, "paused", flow, "", None, text)
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
