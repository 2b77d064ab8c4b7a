"""What a flow is doing now, as one value for people, pages and scripts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from srm.config.model import FlowConfig
from srm.domain.flow_state.pause import Pause
from srm.domain.flow_state.replication_records import PartitionStatus
from srm.domain.groups.checkpoints import CheckpointOutcome
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.text.amount import some
from srm.domain.text.reason import Reason
from srm.domain.verification.offset_ranges import both_ends
from srm.engine.flows.loss_forecast import Standing, read_known, standing_of, with_commits
from srm.engine.flows.replicator_status import (
    DriverStatus,
    SlotStatus,
    driver_status,
    is_alive,
    slot_statuses,
)
from srm.engine.flows.source_look import (
    look_at_source,
    partitions_of,
    topics_by_copies,
    topics_of_source,
)
from srm.engine.flows.supervision import standing_pause
from srm.engine.groups.checkpoints import Survey, survey
from srm.engine.moves.planning.outlook import Outlook
from srm.engine.moves.planning.problems import unsettled_problems
from srm.engine.ports import FlowContext, FlowMaps, GroupDescription, TopicDescription
from srm.errors import SrmError, UnavailableError

TopicState = Literal["copying", "caught-up", "waiting", "stopped", "not-created"]


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """One selected topic.

    Attributes:
        partitions: partitions on the source; ``reported`` of them have a known position.
        copied: offsets of the remote topic that the copy has filled and its log still holds, those
            of the markers of claims among them.
        remaining: source offsets not passed yet; of a partition that nobody has reported, all.
        state: ``copying`` only while a replicator is alive, ``caught-up`` only as the source says.
        reason: why it is stopped or waiting, or what was lost; ``action`` is what to do about it.
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
    then all this is what the target knows, and what is still to copy is as of ``heard_ms``, when
    the source last answered a slot (epoch milliseconds; 0: never, or not known).
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
    heard_ms: int = 0

    @property
    def is_copied(self) -> bool:
        """Whether anybody is there to copy it, and its source answers."""
        return is_alive(self.driver, self.slots) and not self.source_error


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
    if pause is not None:
        return given_up(found, pause)
    if found.standing is None or found.source_error:
        return found
    hints = _without_checkpoint(found.flow, found.groups, found.standing)
    unsettled = (problem.text for problem in unsettled_problems(context))
    return replace(found, hints=(*found.hints, *unsettled, *hints))


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
    flow, now_ms = context.config.flow, context.now_ms()
    topics = topics_by_copies(context)
    found = read_known(context, also=topics)
    standing = standing_of(context, found, None)
    ends = told_ends(found.facts.maps, partitions_of(topics, sorted(topics)))
    logs = Logs(found.facts.maps, found.facts.target.topics, ends, copy_starts=found.copy_starts)
    described = context.target.groups(found.facts.groups) if found.facts.groups else {}
    return replace(
        copying_status(context, now_ms, topics.values(), logs, source_error),
        groups=tuple(
            GroupStatus(
                plan.group,
                "unknown",
                _state_of(described, plan.group),
                {"checkpoint": len(found.places(plan.group))},
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
    selected = topics_of_source(context)
    known, error = _read_known(context, selected)
    # The positions: the maps themselves are not read.
    maps = context.maps.load(selected, {}) if known is None else known.facts.maps
    source = look_at_source(context, selected, maps)
    standing = None
    if known is not None:
        standing = standing_of(context, with_commits(context, known), source)
    target_topics = context.target.topics()
    remotes = [config.policy.format_remote_topic(config.flow.source, name) for name in selected]
    copies = partitions_of(target_topics, [name for name in remotes if name in target_topics])
    copy_starts = context.target.log_starts(copies) if copies else {}
    logs = Logs(maps, target_topics, source.ends, source.starts, copy_starts)
    copying = copying_status(context, now_ms, selected.values(), logs)
    found = survey(context)
    groups = _groups(context, found)
    unread = {f"group {name}": why.text for name, why in found.errors.items()}
    return replace(
        copying,
        groups=groups,
        hints=hints(context, copying.topics, groups, found.outcomes, copying.driver),
        errors={**copying.errors, **unread, **error},
        standing=standing,
    )


def _read_known(
    context: FlowContext, topics: Collection[str]
) -> tuple[Outlook | None, dict[str, str]]:
    """Read what the forecast is made from; without it all else is told, with the reason."""
    try:
        return read_known(context, also=topics), {}
    except SrmError as error:
        return None, {"forecast": str(error)}


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
    is_copied = is_alive(driver, slots) and not source_error
    found = tuple(
        _topic_status(
            topic,
            config.policy.format_remote_topic(config.flow.source, topic.name),
            logs,
            is_copied=is_copied,
            is_heard=not source_error,
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
        heard_ms=max((report.source_heard_ms for report in logs.maps.reports), default=0),
    )


def _topic_status(
    topic: TopicDescription, remote: str, logs: Logs, *, is_copied: bool, is_heard: bool
) -> TopicStatus:
    """Sum up one topic from its positions, statuses and the bounds of its logs; pure."""
    maps, ends = logs.maps, logs.ends
    copied = remaining = reported = 0
    states = Counter[str]()
    reasons: dict[str, list[str]] = {}
    action = ""
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
        damage = maps.errors.get(partition)
        if reason := damage or _reason(status):
            reasons.setdefault(reason.removeprefix(f"{partition}: "), []).append(str(number))
        action = action or (status.action if status and not damage else "")
    return TopicStatus(
        topic.name,
        remote,
        topic.partitions,
        reported,
        copied,
        remaining,
        _topic_state(
            states,
            all_reported=reported == topic.partitions,
            is_caught_up=is_heard and not remaining,
            is_copied=is_copied,
        )
        if remote in logs.on_target
        else "not-created",
        "; ".join(f"{some(numbers)}: {reason}" for reason, numbers in reasons.items()),
        action,
    )


def told_ends(maps: FlowMaps, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the ends of the source's logs as slots told them last; pure."""
    positions = {place: maps.get(place).position for place in partitions}
    return {place: at.source_end for place, at in positions.items() if at is not None}


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
    if not config.groups or not groups:
        none = without_groups(config)
        found.append(f"{none.text}: {none.action}" if none.action else none.text)
    if groups and not config.sync_group_offsets_enabled:
        found.append(f"offsets are not written for groups: set {flow}.sync.group.offsets.enabled")
    replicas = {
        outcome.reason: None
        for outcome in outcomes
        if outcome.state == "not-selected"
        and config.policy.topic_source(outcome.upstream.topic) == flow.target
    }
    return (*found, *replicas)


def without_groups(config: FlowConfig) -> Reason:
    """Say of a flow without groups why it has none, and what to do where there is something."""
    if config.groups:
        return Reason("no selected group has committed offsets on a selected topic")
    ends = f"--source {config.flow.source} --target {config.flow.target}"
    return Reason("no group is selected", f"srm-control groups {ends} --add 'GROUP'")


def _start_hint(flow: Flow, driver: DriverStatus | None) -> str:
    if driver is not None and driver.stopped_by:
        return (
            f"{driver.stopped_by} has stopped the replicator: srm replicator restart --flow "
            f"'{driver.stopped_flow}' lets srm_replication start it, srm replicate --flow '{flow}' "
            "starts it here"
        )
    return f"no replicator is running: srm replicate --flow '{flow}'"


def _reason(status: PartitionStatus | None) -> str:
    if status is None:
        return ""
    if status.state != "stopped" or status.lost_from is None:
        return status.what
    lost = both_ends(status.lost_from, status.lost_to or 0)
    return status.what if lost in status.what else f"{status.what} (offsets {lost})"


def _topic_state(
    states: Mapping[str, int], *, all_reported: bool, is_caught_up: bool, is_copied: bool
) -> TopicState:
    if states.get("stopped"):
        return "stopped"
    if states.get("waiting") or not all_reported:
        return "waiting"
    if is_caught_up:
        return "caught-up"
    return "copying" if is_copied else "waiting"


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
