"""What a flow is doing now, as one value for people, pages and scripts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from srm.domain.amount import some
from srm.domain.checkpoints import CheckpointOutcome
from srm.domain.pause import Pause
from srm.domain.replication_records import (
    DRIVER_KEY,
    DriverHeartbeat,
    DriverRequest,
    PartitionStatus,
    SlotReport,
)
from srm.domain.silence import is_silent
from srm.domain.topics import Flow, TopicPartition
from srm.engine.checkpoints import Survey, survey
from srm.engine.ports import FlowContext, FlowMaps, GroupDescription, TopicDescription
from srm.engine.standing import Standing, read_standing
from srm.engine.supervision import read_request, standing_pause, state_topic
from srm.engine.topic_sync import selected_topics
from srm.errors import IntegrityError, SrmError, UnavailableError

TopicState = Literal["copying", "caught-up", "waiting", "stopped", "not-created"]


@dataclass(frozen=True, slots=True)
class DriverStatus:
    """The replicator application, by its latest heartbeat.

    ``request`` is a standing request that it end, which it was not started after.
    """

    driver: str
    application_id: str
    host: str
    pid: int
    age_ms: int
    alive: bool
    ended: bool = False
    request: DriverRequest | None = None


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """One slot, by its latest report."""

    slot: str
    generation: int
    partitions: int
    age_ms: int
    alive: bool


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """One selected topic.

    Attributes:
        partitions: partitions on the source; ``reported`` of them have a known position.
        copied: offsets of the remote topic that the copy has filled and its log still holds, those
            of the markers of claims among them.
        remaining: source offsets not passed yet; of a partition that nobody has reported, all.
        state: ``copying`` only while a replicator is alive.
        reason: why it is stopped or waiting, or what was lost.
    """

    topic: str
    remote_topic: str
    partitions: int
    reported: int
    copied: int
    remaining: int
    state: TopicState
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """One selected group: its state on both clusters and its partitions by checkpoint state.

    ``skipped`` are records it has still to read on the source and would not find on the target.
    """

    group: str
    source_state: str
    target_state: str
    partitions: Mapping[str, int]
    remaining: int
    skipped: int


@dataclass(frozen=True)
class FlowStatus:
    """One flow at one moment; ``hints`` say what to type where something is missing.

    ``standing`` is what it would cost if the source died now, None where it is given up already:
    ``pause`` says why nothing is copied. ``source_error`` says why the source could not be asked:
    then all this is what the target knows.
    """

    flow: Flow
    enabled: bool
    time_ms: int
    driver: DriverStatus | None = None
    slots: tuple[SlotStatus, ...] = ()
    topics: tuple[TopicStatus, ...] = ()
    groups: tuple[GroupStatus, ...] = ()
    remaining: int = 0
    hints: tuple[str, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)
    standing: Standing | None = None
    source_error: str = ""
    pause: Pause | None = None

    @property
    def is_copied(self) -> bool:
        """Whether anybody is there to copy it, and its source answers."""
        return _is_alive(self.driver, self.slots) and not self.source_error


def flow_status(context: FlowContext) -> FlowStatus:
    """Look at a flow once; a source that does not answer leaves what the target knows.

    Raises:
        SrmError: the target does not answer, or something else is wrong.
    """
    pause = standing_pause(context)
    try:
        found = _status_of_both(context)
    except UnavailableError as error:
        found = _status_of_target(context, str(error))
        return found if pause is None else given_up(found, pause)
    if pause is not None:
        return given_up(found, pause)
    try:
        standing = read_standing(context)[0]
    except SrmError as error:
        return replace(found, errors={**found.errors, "forecast": str(error)})
    hints = _without_checkpoint(found.flow, found.groups, standing)
    return replace(found, standing=standing, hints=(*found.hints, *hints))


def _without_checkpoint(
    flow: Flow, groups: Sequence[GroupStatus], standing: Standing
) -> Iterator[str]:
    known = {group.group for group in standing.forecast.groups}
    if missing := sorted(group.group for group in groups if group.group not in known):
        yield (
            f"no checkpoint yet of {some(missing)}: if {flow.source} died now, auto.offset.reset "
            f"would decide where to begin: srm checkpoints emit --flow '{flow}', or the DAG "
            "srm_checkpoints"
        )


def given_up(found: FlowStatus, pause: Pause) -> FlowStatus:
    """Say of a flow that is paused what ends that: what its source's death costs is no question."""
    flow = found.flow
    hint = (
        f"nothing is copied until it is decided what becomes of {flow.source}, when it answers: "
        f"srm return status --flow '{flow}', or, rebuilt and empty, "
        f"srm restore --from {flow.target} --to {flow.source}"
    )
    hints = tuple(one for one in found.hints if one != _without_hint(flow))
    return replace(found, pause=pause, standing=None, hints=(hint, *hints))


def _status_of_target(context: FlowContext, source_error: str) -> FlowStatus:
    """Say what the target knows; numbers of the source are those it last told."""
    config, now_ms = context.config, context.now_ms()
    standing, found = read_standing(context)
    flow, policy = config.flow, config.policy
    copies = partitions_of(found.target.topics, sorted({p.topic for p in found.copies.values()}))
    copy_starts = context.target.log_starts(copies) if copies else {}
    ends = told_ends(found.maps, found.copies)
    topics = [
        TopicDescription(name, "", found.target.topics[remote].partitions)
        for name in sorted({original.topic for original in found.copies})
        for remote in (policy.format_remote_topic(flow.source, name),)
    ]
    logs = Logs(found.maps, found.target.topics, ends, copy_starts=copy_starts)
    described = context.target.groups(found.groups) if found.groups else {}
    return replace(
        copying_status(context, now_ms, topics, logs, source_error),
        groups=tuple(
            GroupStatus(
                plan.group,
                "unknown",
                _state_of(described, plan.group),
                {"checkpoint": len(plan.positions)},
                0,
                plan.skipped,
            )
            for plan in found.plans
        ),
        hints=(_without_hint(flow),),
        standing=standing,
    )


def _without_hint(flow: Flow) -> str:
    return (
        f"{flow.source} does not answer: this is what {flow.target} knows; to go on without it: "
        f"srm failover run --mode unplanned --source {flow.source} --target {flow.target}"
    )


def _status_of_both(context: FlowContext) -> FlowStatus:
    config, now_ms = context.config, context.now_ms()
    source_topics = context.source.topics()
    selected = selected_topics(source_topics, config)
    maps = context.maps.load(selected, {})  # the positions: the maps themselves are not read
    ends = context.source.log_ends(partitions_of(source_topics, selected)) if selected else {}
    unknown = [p for p in ends if maps.get(p).position is None]
    source_starts = context.source.log_starts(unknown) if unknown else {}
    target_topics = context.target.topics()
    remotes = [config.policy.format_remote_topic(config.flow.source, name) for name in selected]
    copies = partitions_of(target_topics, [name for name in remotes if name in target_topics])
    copy_starts = context.target.log_starts(copies) if copies else {}
    logs = Logs(maps, target_topics, ends, source_starts, copy_starts)
    copying = copying_status(context, now_ms, [source_topics[name] for name in selected], logs)
    found = survey(context)
    groups = _groups(context, found)
    unread = {f"group {name}": why for name, why in found.errors.items()}
    return replace(
        copying,
        groups=groups,
        hints=hints(context, copying.topics, groups, found.outcomes, copying.driver),
        errors={**copying.errors, **unread},
    )


@dataclass(frozen=True)
class Logs:
    """What a look has found out about the logs of a flow's topics and of their copies.

    ``ends`` are those of the source, ``source_starts`` are wanted of partitions without a position.
    ``on_target`` names the topics of the target, ``copy_starts`` are where logs of copies begin.
    """

    maps: FlowMaps
    on_target: Collection[str]
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    source_starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    copy_starts: Mapping[TopicPartition, int] = field(default_factory=dict)


def _is_alive(driver: DriverStatus | None, slots: Iterable[SlotStatus]) -> bool:
    return (driver is not None and driver.alive) or any(slot.alive for slot in slots)


def copying_status(
    context: FlowContext,
    now_ms: int,
    topics: Iterable[TopicDescription],
    logs: Logs,
    source_error: str = "",
) -> FlowStatus:
    """Say who copies a flow, and how far these topics of it are; no groups, hints, nor forecast.

    Args:
        context: the flow; its state topic is asked who drives it.
        now_ms: epoch milliseconds.
        topics: as the source describes them, or described it last.
        logs: what else is known of them.
        source_error: why the source could not be asked, if so; then nobody can be copying.
    """
    config = context.config
    driver, errors = driver_status(context, now_ms)
    slots = slot_statuses(logs.maps.reports, now_ms)
    is_alive = _is_alive(driver, slots)
    found = tuple(
        _topic_status(
            topic,
            config.policy.format_remote_topic(config.flow.source, topic.name),
            logs,
            is_alive=is_alive and not source_error,
        )
        for topic in topics
    )
    return FlowStatus(
        flow=config.flow,
        enabled=config.enabled,
        time_ms=now_ms,
        driver=driver,
        slots=slots,
        topics=found,
        remaining=sum(topic.remaining for topic in found),
        errors=errors,
        source_error=source_error,
    )


def _topic_status(
    topic: TopicDescription, remote: str, logs: Logs, *, is_alive: bool
) -> TopicStatus:
    """Sum up one topic from its positions, statuses and the bounds of its logs; pure."""
    maps, ends = logs.maps, logs.ends
    copied = remaining = reported = 0
    states = Counter[str]()
    reasons: dict[str, None] = {}
    for number in range(topic.partitions):
        partition = TopicPartition(topic.name, number)
        position = maps.get(partition).position
        if position is not None:
            reported += 1
            remaining += max(0, ends.get(partition, 0) - position.source_next)
            start = logs.copy_starts.get(TopicPartition(remote, number), position.target_next)
            copied += max(0, position.target_next - start)
        else:
            end = ends.get(partition, 0)
            remaining += max(0, end - logs.source_starts.get(partition, end))
        status = (maps.statuses or {}).get(partition)
        states[status.state if status else "copying"] += 1
        if reason := maps.errors.get(partition) or _reason(status):
            reasons[f"{number}: {reason}"] = None
    return TopicStatus(
        topic.name,
        remote,
        topic.partitions,
        reported,
        copied,
        remaining,
        _topic_state(
            states, remaining, all_reported=reported == topic.partitions, is_alive=is_alive
        )
        if remote in logs.on_target
        else "not-created",
        "; ".join(reasons),
    )


def told_ends(maps: FlowMaps, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the ends of the source's logs as slots told them last; pure."""
    positions = {place: maps.get(place).position for place in partitions}
    return {place: at.source_end for place, at in positions.items() if at is not None}


def slot_statuses(reports: Sequence[SlotReport], now_ms: int) -> tuple[SlotStatus, ...]:
    """Say how long ago each slot was heard from; pure.

    What has only left positions behind, as a restore does, never was one that copies.
    """
    return tuple(
        SlotStatus(
            report.slot,
            report.generation,
            len(report.positions),
            max(0, now_ms - report.time_ms),
            not is_silent(now_ms - report.time_ms),
        )
        for report in sorted(reports, key=lambda report: report.slot)
        if report.time_ms or report.positions
    )


def hints(
    context: FlowContext,
    topics: Sequence[TopicStatus],
    groups: Sequence[GroupStatus],
    outcomes: Sequence[CheckpointOutcome],
    driver: DriverStatus | None,
) -> tuple[str, ...]:
    """Say what keeps the flow from doing its work, each with the command or key that helps."""
    config = context.config
    flow = config.flow
    ends = f"--source {flow.source} --target {flow.target}"
    found: list[str] = []
    if not config.enabled:
        found.append(f"the flow is off: set {flow}.enabled=true")
    if not topics:
        found.append(f"no topic is selected: srm-control topics {ends} --add 'TOPIC'")
    elif driver is None or not driver.alive:
        found.append(_start_hint(flow, driver))
    if not config.groups:
        found.append(f"no group is selected: srm-control groups {ends} --add 'GROUP'")
    elif not groups:
        found.append("no selected group has committed offsets on a selected topic")
    if groups and not config.sync_group_offsets_enabled:
        found.append(f"offsets are not written for groups: set {flow}.sync.group.offsets.enabled")
    replicas = {
        outcome.reason: None
        for outcome in outcomes
        if outcome.state == "not-selected"
        and config.policy.topic_source(outcome.upstream.topic) == flow.target
    }
    return (*found, *replicas)


def _start_hint(flow: Flow, driver: DriverStatus | None) -> str:
    request = driver.request if driver else None
    if request is not None and request.action == "stop":
        return (
            f"{request.by} has stopped the replicator: srm replicator restart --flow '{flow}' lets "
            f"srm_replication start it, srm replicate --flow '{flow}' starts it here"
        )
    return f"no replicator is running: srm replicate --flow '{flow}'"


def partitions_of(
    topics: Mapping[str, TopicDescription], names: Sequence[str]
) -> list[TopicPartition]:
    """Return all partitions of some topics."""
    return [TopicPartition(name, n) for name in names for n in range(topics[name].partitions)]


def _reason(status: PartitionStatus | None) -> str:
    if status is None:
        return ""
    if status.state == "stopped" and status.lost_from is not None:
        return f"{status.reason} (offsets {status.lost_from} to {status.lost_to})"
    return status.reason


def _topic_state(
    states: Mapping[str, int], remaining: int, *, all_reported: bool, is_alive: bool
) -> TopicState:
    if states.get("stopped"):
        return "stopped"
    if states.get("waiting") or not all_reported:
        return "waiting"
    if not remaining:
        return "caught-up"
    return "copying" if is_alive else "waiting"


def driver_status(context: FlowContext, now_ms: int) -> tuple[DriverStatus | None, dict[str, str]]:
    """Say who drives a flow, and what cannot be read of that; None: nobody ever did."""
    records = state_topic(context).read_commands()
    value = records.get(DRIVER_KEY)
    if value is None:
        return None, {}
    try:
        beat = DriverHeartbeat.decode(value)
    except IntegrityError as error:
        return None, {"driver": str(error)}
    age_ms = max(0, now_ms - beat.time_ms)
    request = read_request(records)
    if request is not None and request.request == beat.started_after:
        request = None
    alive = not beat.ended and not is_silent(age_ms)
    return (
        DriverStatus(
            *(beat.driver, beat.application_id, beat.host, beat.pid, age_ms, alive),
            ended=beat.ended,
            request=request,
        ),
        {},
    )


def _groups(context: FlowContext, found: Survey) -> tuple[GroupStatus, ...]:
    by_group = defaultdict[str, list[CheckpointOutcome]](list)
    for outcome in found.outcomes:
        by_group[outcome.group].append(outcome)
    if not by_group:
        return ()
    source = context.source.groups(sorted(by_group))
    target = context.target.groups(sorted(by_group))
    return tuple(
        GroupStatus(
            group,
            _state_of(source, group),
            _state_of(target, group),
            dict(sorted(Counter(outcome.state for outcome in outcomes).items())),
            sum(outcome.remaining for outcome in outcomes),
            sum(outcome.skipped for outcome in outcomes),
        )
        for group, outcomes in sorted(by_group.items())
    )


def _state_of(groups: Mapping[str, GroupDescription], group: str) -> str:
    return groups[group].state if group in groups else "unknown"
