"""State and health of a flow at one moment, computed by pure functions from fetched facts."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Literal

from pydantic import PlainSerializer

from srm.config.model import FlowConfig
from srm.domain.flow_state import replication_records
from srm.domain.flow_state.replication_records import State as ReportedState
from srm.domain.groups.checkpoints import CheckpointOutcome
from srm.domain.groups.proof import FlowProof
from srm.domain.moves.disaster import Forecast
from srm.domain.moves.progress import end_of_pause
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.runs import both_ends
from srm.domain.text.amount import Finding, Reason, amount, problem, some, warning
from srm.domain.text.documents import encode
from srm.engine.cluster_ports import TopicDescription
from srm.engine.flows import supervision
from srm.engine.flows.source_look import SourceLook
from srm.engine.ports import FlowMaps

PartitionState = ReportedState | Literal["unknown"]
"""State of a partition; ``unknown`` if no slot has ever reported it."""
GOING_ON: Final[frozenset[PartitionState]] = frozenset({"claiming", "copying"})
IN_TROUBLE: Final[frozenset[PartitionState]] = replication_records.AT_REST
TopicState = Literal["copying", "caught-up", "waiting", "stopped", "not-created"]


@dataclass(frozen=True)
class FlowForecast:
    """The current forecast of a flow; ``line`` is its text for operators.

    ``there``: groups without a forecast, as their route leads to the target already.
    """

    line: str
    forecast: Forecast
    proof: FlowProof | None = None
    there: tuple[str, ...] = ()


def _texts(notes: Iterable[replication_records.PartitionNotes]) -> tuple[str, ...]:
    return tuple(note.text for note in notes if note.text)


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition: its state and the next offsets to read on the source and write on the target.

    ``source_end`` is the log end offset on the source, None if the source did not answer.
    ``since_ms`` is when the state began (0: unknown), ``reason`` why, ``action`` the remedy.
    ``notes`` are losses and anomalies.
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
    notes: Annotated[
        tuple[replication_records.PartitionNotes, ...],
        PlainSerializer(_texts, return_type=tuple[str, ...]),
    ]
    action: str = ""

    @property
    def note_texts(self) -> tuple[str, ...]:
        return _texts(self.notes)


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """One selected topic; ``reported`` of its ``partitions`` have a known position.

    ``copied``: offsets that the log of the remote topic still holds, including markers of claims.
    ``remaining``: source offsets to copy; all offsets of a partition without a report.
    ``state``: ``copying`` only with a live replicator, ``caught-up`` only while the source answers.
    """

    topic: str
    remote_topic: str
    partitions: int
    reported: int
    copied: int
    remaining: int
    state: TopicState
    reason: str = ""
    action: str = ""


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """One selected group: its states, its partitions by checkpoint state, records it would skip.

    ``lag``: offsets after its commits on the source, None if not known. ``remaining``: records
    before its commits that are not copied yet.
    """

    group: str
    source_state: str
    target_state: str
    partitions: Mapping[str, int]
    remaining: int
    skipped: int
    lag: int | None = None


@dataclass(frozen=True)
class FlowStatus:
    """One flow at one moment; ``hints`` name problems with the commands that solve them.

    ``standing`` is the forecast if the source died now, None for a paused flow. With
    ``source_error`` the lag is as of ``heard_ms``, the source's last answer to a slot (0: unknown).
    ``undecided``: moves that have paused the flow and may still be released.
    """

    flow: Flow
    enabled: bool
    time_ms: int
    driver: supervision.DriverStatus | None = None
    slots: tuple[supervision.SlotStatus, ...] = ()
    topics: tuple[TopicStatus, ...] = ()
    groups: tuple[GroupStatus, ...] = ()
    remaining: int = 0
    hints: tuple[str, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)
    standing: FlowForecast | None = None
    source_error: str = ""
    pause: replication_records.Pause | None = None
    heard_ms: int = 0
    selects: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()

    @property
    def never_ran(self) -> bool:
        return supervision.never_ran(self.flow, self.driver, self.slots) is not None

    @property
    def idle(self) -> str:
        """Reason why a partition or topic is not copied; empty while a replicator copies."""
        if self.source_error:
            return f"{self.flow.source} does not answer"
        down = any(supervision.down_reasons(self.flow, self.driver, self.slots))
        return "no replicator copies it now" if down else ""


@dataclass(frozen=True)
class FlowFacts:
    """Facts about a flow that one look has fetched; ``source`` has the last known log ends."""

    config: FlowConfig
    time_ms: int
    commands: Mapping[bytes, bytes]
    maps: FlowMaps
    source: SourceLook
    on_target: Mapping[str, TopicDescription]
    copy_starts: Mapping[TopicPartition, int] = field(default_factory=dict)


def status_of(facts: FlowFacts) -> tuple[FlowStatus, dict[str, tuple[PartitionRow, ...]]]:
    """Return the status of replicator and topics, and partitions; no groups, no forecast."""
    config, maps = facts.config, facts.maps
    driver = supervision.driver_status(facts.commands, config.flow, facts.time_ms)
    is_damaged = driver is None and replication_records.DRIVER_KEY in facts.commands
    status = FlowStatus(
        flow=config.flow,
        enabled=config.enabled,
        time_ms=facts.time_ms,
        driver=driver,
        slots=supervision.slot_statuses(maps.reports, facts.time_ms),
        errors={"driver": "its heartbeat is damaged"} if is_damaged else {},
        source_error=facts.source.error,
        pause=replication_records.read_pause(facts.commands),
        heard_ms=max((report.source_heard_ms for report in maps.reports), default=0),
        selects=config.topics,
    )
    described = sorted(facts.source.topics.items())
    reported = {name: tuple(_partitions(topic, facts)) for name, topic in described}
    going: TopicState = "waiting" if status.idle else "copying"
    topics = tuple(_topic_status(name, views, facts, going) for name, views in reported.items())
    remaining = sum(topic.remaining for topic in topics)
    return replace(status, topics=topics, remaining=remaining), reported


def as_waiting(status: FlowStatus, views: Sequence[PartitionRow]) -> tuple[PartitionRow, ...]:
    """Mark copied partitions as waiting, even those caught up, where no replicator copies."""
    idle = status.idle
    return tuple(
        replace(view, state="waiting", since_ms=0, reason=view.reason or idle)
        if idle and view.state in GOING_ON
        else view
        for view in views
    )


def _partitions(topic: TopicDescription, facts: FlowFacts) -> Iterator[PartitionRow]:
    maps, source = facts.maps, facts.source
    for number in range(topic.partitions):
        place = TopicPartition(topic.name, number)
        at, end = maps.to_copy(place), source.ends.get(place)
        status, damage = maps.statuses.get(place), maps.errors.get(place)
        begin = at.source_next if at else source.starts.get(place, end or 0)
        yield PartitionRow(
            topic.name,
            number,
            status.state if status else "copying" if at else "unknown",
            at.source_next if at else None,
            end,
            at.target_next if at else None,
            max(0, (end or 0) - begin),
            status.time_ms if status else 0,
            damage or _reason(status),
            maps.notes.get(place, ()),
            status.action if status and not damage else "",
        )


def _topic_status(
    name: str, views: Sequence[PartitionRow], facts: FlowFacts, state: TopicState
) -> TopicStatus:
    """Sum up one topic from its partitions; ``state`` applies if it has records to copy."""
    config, starts = facts.config, facts.copy_starts
    remote = config.names.remote(name)
    copied = reported = 0
    reasons: dict[str, list[str]] = {}
    for view in views:
        if view.target_next is not None:
            reported += 1
            start = starts.get(TopicPartition(remote, view.partition), view.target_next)
            copied += max(0, view.target_next - start)
        if view.reason:
            reason = view.reason.removeprefix(f"{name}-{view.partition}: ")
            reasons.setdefault(reason, []).append(str(view.partition))
    remaining, states = sum(view.lag for view in views), {view.state for view in views}
    if remote not in facts.on_target:
        state = "not-created"
    elif "stopped" in states:
        state = "stopped"
    elif "waiting" in states or reported < len(views):
        state = "waiting"
    elif not remaining and not facts.source.error:
        state = "caught-up"
    return TopicStatus(
        name,
        remote,
        len(views),
        reported,
        copied,
        remaining,
        state,
        "; ".join(
            f"partition{'s' * (len(numbers) > 1)} {some(numbers)}: {reason}"
            for reason, numbers in reasons.items()
        ),
        next((view.action for view in views if view.action), ""),
    )


def _reason(status: replication_records.PartitionStatus | None) -> str:
    if status is None:
        return ""
    if status.state != "stopped" or status.lost_from is None:
        return status.what
    lost = both_ends(status.lost_from, status.lost_to or 0)
    return status.what if lost in status.what else f"{status.what} (offsets {lost})"


def offsets_left(offset: int | None, end: int | None) -> int | None:
    """Count the offsets up to an end seen earlier; 0 for an offset past it."""
    return None if offset is None or end is None else max(0, end - offset)


def total_lag(places: Iterable[tuple[int | None, int | None]]) -> int | None:
    """Sum the offsets from commits to log ends, as Kafka does; None if one is not known."""
    lags = [offsets_left(*one) for one in places]
    return None if not lags or None in lags else sum(lag or 0 for lag in lags)


NO_CHECKPOINT: Final = "no checkpoint: auto.offset.reset would decide"
State = Literal["RUNNING", "DEGRADED", "STOPPED", "PAUSED", "IDLE", "OFF"]
"""Health, the same for commands, DAGs, REST and pages; docs/operate.md explains it."""

_STATES: Final[Mapping[str, State]] = {"off": "OFF", "paused": "PAUSED", "no-topic": "IDLE"}
"""States that one condition decides; any other blocking condition means STOPPED."""


@dataclass(frozen=True, slots=True)
class Health:
    """State of a flow or topic, with the reasons; the worst is first."""

    state: State
    reasons: tuple[Reason, ...] = ()

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> Health:
        """Return the health by findings; the first blocking one decides."""
        found = tuple(findings)
        blocking = (_STATES.get(one.id, "STOPPED") for one in found if one.blocks)
        state = next(blocking, "DEGRADED" if found else "RUNNING")
        return cls(state, found)


def topic_health(topic: TopicStatus, found: FlowStatus) -> Health:
    """Return the health of one topic; that of its flow if the flow is not copied."""
    if topic.state == "stopped":
        when = "before the pause: " if found.pause is not None else ""
        return Health("STOPPED", (Reason(f"{when}{topic.reason or 'stopped'}", topic.action),))
    if (idle := next(_not_copied(found), None)) is not None:
        return Health(_STATES.get(idle.id, "STOPPED"), (idle,))
    if found.source_error:
        return Health("DEGRADED", (Reason(found.idle),))
    if topic.state in {"copying", "caught-up"}:
        return Health("RUNNING", (Reason(topic.reason),) if topic.reason else ())
    return Health("DEGRADED", (Reason(topic.reason or _waiting(topic), topic.action),))


def flow_health(found: FlowStatus) -> Health:
    return Health.of(flow_findings(found))


def signs_health(signs: supervision.FlowSigns) -> Health:
    """Return the health of a flow by its state topic alone, as a supervisor sees it."""
    if signs.driver is None or signs.has_ended:
        return Health.of([problem("replicator", "the replicator is not running")])
    if not signs.partitions and not signs.stopped:
        return Health.of([problem("no-topic", "no partition is copied")])
    every = len(signs.stopped) >= signs.partitions
    return Health.of(
        Finding(reason.text, reason.action, "stopped", every) for reason in signs.stopped
    )


def signs_line(signs: supervision.FlowSigns) -> str:
    health = signs_health(signs)
    why = f": {'; '.join(reason.text for reason in health.reasons)}" if health.reasons else ""
    return f"{signs.line()}, {health.state}{why}"


def document(found: FlowStatus) -> dict[str, Any]:
    """Return the status of a flow as plain JSON, with its health and that of its topics."""
    values: dict[str, Any] = json.loads(encode(found))
    values["health"] = json.loads(encode(flow_health(found)))
    for topic, one in zip(values["topics"], found.topics, strict=True):
        topic["health"] = json.loads(encode(topic_health(one, found)))
    return values


def off_reason(flow: Flow) -> Finding:
    return problem("off", "switched off", f"set {flow}.enabled=true")


def pause_reason(flow: Flow, pause: replication_records.Pause, undecided: Sequence[str]) -> Finding:
    ends = end_of_pause(flow, undecided[0]) if undecided else f"srm return status --flow '{flow}'"
    return problem("paused", pause.reason, ends)


def flow_findings(found: FlowStatus) -> Iterator[Finding]:
    """Yield the problems of a flow; if it is off or paused, only that."""
    down = tuple(_not_copied(found))
    if down and down[0].id != "replicator":
        yield down[0]
        return
    yield from down
    if not down and not found.topics and not found.source_error:
        yield _no_topic(found)
        return
    flow = found.flow
    if found.source_error:
        yield warning(
            "source-away",
            f"{flow.source} does not answer: {found.source_error}",
            # Without a copy there is nothing to continue with.
            "" if found.never_ran else f"srm failover plan --mode unplanned {flow.options}",
        )
    yield from _of_topics(found)
    silent = [slot for slot in found.slots if not slot.alive]
    if silent and len(silent) < len(found.slots):
        where = some([one.place for one in silent])
        text = f"{amount(len(silent), 'slot')} of {len(found.slots)} silent: {where}"
        yield warning("silent-slot", text, f"srm replicator restart --flow '{flow}'")
    if found.driver is not None and found.driver.alive:
        for text in found.driver.troubles:
            yield warning("duty", text)
    if found.standing is not None and found.standing.proof is not None:
        wrong = sorted({one.group for one in found.standing.proof.disproved})
        if wrong:
            text = f"a checkpoint was proven wrong and is not emitted: {some(wrong)}"
            yield warning("proof", text)
    yield from _unreadable(found)


def _unreadable(found: FlowStatus) -> Iterator[Finding]:
    """Yield a finding for each reason why groups could not be read, not for each group."""
    alike = defaultdict[str, list[str]](list)
    for name, error in found.errors.items():
        alike[error.replace(name.removeprefix("group "), "")].append(name)
    for first, *others in alike.values():
        more = f"; {len(others):,} more alike: {some(others)}" if others else ""
        yield warning("unreadable", f"{first}: {found.errors[first]}{more}")


def _not_copied(found: FlowStatus) -> Iterator[Finding]:
    if not found.enabled:
        yield off_reason(found.flow)
    if found.pause is not None:
        yield pause_reason(found.flow, found.pause, found.undecided)
    yield from supervision.down_reasons(found.flow, found.driver, found.slots)


def _no_topic(found: FlowStatus) -> Finding:
    flow = found.flow
    action = f"srm-control topics {flow.options} --add 'TOPIC'"
    if found.selects:
        text = f"{some(found.selects)} matches no topic of {flow.source}"
        return problem("no-topic", text, f"create one there, or {action}")
    return problem("no-topic", "no topic is selected", action)


def _of_topics(found: FlowStatus) -> Iterator[Finding]:
    states: tuple[tuple[TopicState, str, str], ...] = (
        ("stopped", "stopped", "stopped"),
        ("not-created", "absent-topic", "not created yet"),
    )
    for state, name, means in states:
        some_of = [topic for topic in found.topics if topic.state == state]
        if some_of:
            names = some([topic.topic for topic in some_of])
            why = f"srm why {some_of[0].topic} --flow '{found.flow}'"
            actions = {topic.action for topic in some_of if topic.action}
            actions = actions or {why if state == "not-created" else ""}
            if len(actions) > 1:
                actions = {f"for each of these topics, run srm why TOPIC --flow '{found.flow}'"}
            [action] = actions
            text = f"{amount(len(some_of), 'topic')} {means}: {names}"
            every = state == "stopped" and len(some_of) == len(found.topics)
            yield Finding(text, action, name, blocks=every)


def _waiting(topic: TopicStatus) -> str:
    if topic.state == "not-created":
        return "the copy is not created yet"
    if topic.reported < topic.partitions:
        return f"{topic.reported} of {topic.partitions} partitions are copied"
    return "no replicator copies it now"


def hints(
    config: FlowConfig, found: FlowStatus, outcomes: Sequence[CheckpointOutcome]
) -> Iterator[Reason]:
    """Yield the obstacles of a flow, each with the command or key that removes it; pure."""
    flow = found.flow
    if found.undecided:
        waits = f"nothing is copied until move {found.undecided[0]} is decided or released"
        yield Reason(waits, end_of_pause(flow, found.undecided[0]))
    elif found.pause is not None:
        yield Reason(
            f"nothing is copied until {flow.source} answers and its records are settled",
            f"srm return status --flow '{flow}', or, rebuilt and empty, "
            f"srm restore --from {flow.target} --to {flow.source}",
        )
    if not found.source_error:
        wanted = {"off", "replicator"} if found.topics else {"off", "no-topic"}
        conditions = (*_not_copied(found), *(() if found.topics else (_no_topic(found),)))
        yield from (one for one in conditions if one.id in wanted)
        yield from _group_hints(config, found, outcomes)
    elif found.pause is None and not found.never_ran:
        yield Reason(
            f"{flow.source} does not answer, values are from {flow.target}; to continue without it",
            f"srm failover run --mode unplanned {flow.options}",
        )


def _group_hints(
    config: FlowConfig, found: FlowStatus, outcomes: Sequence[CheckpointOutcome]
) -> Iterator[Reason]:
    flow, current, names = found.flow, found.standing, config.names
    if not config.groups or not found.groups:
        yield without_groups(config)
    if found.groups and not config.sync_group_offsets_enabled:
        yield Reason("offsets are not written for groups", f"set {flow}.sync.group.offsets.enabled")
    driver = found.driver
    if found.groups and driver is not None and driver.alive:
        late = supervision.late_commits(config, driver)
        yield from () if late is None else (late,)
    replicas = (
        outcome.reason
        for outcome in outcomes
        if outcome.state == "not-selected" and names.is_replica(outcome.upstream.topic)
    )
    yield from map(Reason, dict.fromkeys(replicas))
    forecasts = current.forecast.groups if current else ()
    known = {group.group for group in forecasts}.union(current.there if current else ())
    missing = sorted(group.group for group in found.groups if group.group not in known)
    if current is not None and missing and not found.never_ran:
        yield Reason(
            f"no checkpoint yet of {some(missing)}: if {flow.source} died now, auto.offset.reset "
            "would decide where they start",
            f"srm checkpoints emit --flow '{flow}', or srm replicate, which repeats it",
        )


def group_proof(group: str, proof: FlowProof | None) -> tuple[bool | None, str]:
    """Return whether the last emission proved a group, None if unknown, and why not."""
    if proof is None:
        return None, "not proven yet"
    if wrong := next((one for one in proof.disproved if one.group == group), None):
        return False, f"WRONG, and not emitted: {wrong.upstream}: {wrong.evidence}"
    if why := proof.unproven.get(group):
        return None, f"not proven: {why}"
    return (True, "") if proof.confirms(group) else (None, "not confirmed by the last emission")


def without_groups(config: FlowConfig) -> Reason:
    if config.groups:
        return Reason("no selected group has committed offsets on a selected topic")
    return Reason("no group is selected", f"srm-control groups {config.flow.options} --add 'GROUP'")
