"""State of a flow at one moment, computed by a pure function from the fetched facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from srm.config.model import FlowConfig
from srm.domain.flow_state.anomalies import PartitionNotes
from srm.domain.flow_state.pause import Pause, read_pause
from srm.domain.flow_state.replication_records import AT_REST, PartitionStatus
from srm.domain.flow_state.replication_records import State as ReportedState
from srm.domain.groups.proof_records import FlowProof
from srm.domain.moves.records.forecast import Forecast
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_ranges import both_ends
from srm.domain.text.amount import some
from srm.engine.cluster_ports import TopicDescription
from srm.engine.flows.source_look import SourceLook
from srm.engine.flows.supervision import (
    DriverStatus,
    SlotStatus,
    down_reasons,
    driver_status,
    slot_statuses,
)
from srm.engine.ports import FlowMaps

PartitionState = ReportedState | Literal["unknown"]
"""State of a partition; ``unknown`` if no slot has ever reported it."""
GOING_ON: Final[frozenset[PartitionState]] = frozenset({"claiming", "copying"})
IN_TROUBLE: Final[frozenset[PartitionState]] = AT_REST
TopicState = Literal["copying", "caught-up", "waiting", "stopped", "not-created"]


@dataclass(frozen=True)
class Standing:
    """The current forecast of a flow; ``line`` is its text for operators."""

    line: str
    forecast: Forecast
    proof: FlowProof | None = None


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition: the position of its copy, its state with the reason, and the remedy.

    ``source_next`` and ``target_next`` are None until a slot reports a position. ``lag`` is the
    number of source offsets to copy. ``since_ms`` is when the state began, 0 if unknown.
    """

    topic: str
    partition: int
    state: PartitionState
    source_next: int | None
    source_end: int | None
    target_next: int | None
    lag: int
    since_ms: int = 0
    reason: str = ""
    notes: tuple[PartitionNotes, ...] = ()
    action: str = ""


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """One selected topic.

    ``partitions``: partitions on the source; ``reported`` of them have a known position.
    ``copied``: copied offsets that the log of the remote topic still holds, including the markers
    of claims.
    ``remaining``: source offsets to copy; all offsets of a partition without a report.
    ``state``: ``copying`` only with a live replicator, ``caught-up`` only while the source answers.
    ``reason``: why it is stopped or waiting, or what was lost; ``action`` is the remedy.
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

    ``skipped`` is the number of its unread source records that are missing on the target.
    """

    group: str
    source_state: str
    target_state: str
    partitions: Mapping[str, int]
    remaining: int
    skipped: int


@dataclass(frozen=True)
class FlowStatus:
    """One flow at one moment; ``hints`` name problems with the commands that solve them.

    ``standing`` is the forecast if the source died now, None for a paused flow. ``pause`` explains
    why nothing is copied. With ``source_error`` the source is unavailable; all values are from the
    target then, and the lag is as of ``heard_ms``, when the source last answered a slot (epoch
    milliseconds, 0 if never or unknown). ``selects`` are the patterns of topics.
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
    selects: tuple[str, ...] = ()

    @property
    def idle(self) -> str:
        """Reason why a partition or topic is not copied; empty while a replicator copies."""
        if self.source_error:
            return f"{self.flow.source} does not answer"
        down = any(down_reasons(self.flow, self.driver, self.slots))
        return "no replicator copies it now" if down else ""


@dataclass(frozen=True)
class FlowFacts:
    """Facts about a flow that one look has fetched.

    ``commands`` are the records of the state topic that drivers write and obey. ``source`` holds
    current log end offsets, or the last reported ones. ``copy_starts`` are the log start offsets of
    the copies.
    """

    config: FlowConfig
    time_ms: int
    commands: Mapping[bytes, bytes]
    maps: FlowMaps
    source: SourceLook
    on_target: Mapping[str, TopicDescription]
    copy_starts: Mapping[TopicPartition, int] = field(default_factory=dict)


def status_of(facts: FlowFacts) -> tuple[FlowStatus, dict[str, tuple[PartitionView, ...]]]:
    """Return the status of replicator and topics, and partitions; no groups, no forecast."""
    config, maps = facts.config, facts.maps
    driver, errors = driver_status(facts.commands, config.flow, facts.time_ms)
    status = FlowStatus(
        flow=config.flow,
        enabled=config.enabled,
        time_ms=facts.time_ms,
        driver=driver,
        slots=slot_statuses(maps.reports, facts.time_ms),
        errors=errors,
        source_error=facts.source.error,
        pause=read_pause(facts.commands),
        heard_ms=max((report.source_heard_ms for report in maps.reports), default=0),
        selects=config.topics,
    )
    described = sorted(facts.source.topics.items())
    reported = {name: tuple(_partitions(topic, facts)) for name, topic in described}
    going: TopicState = "waiting" if status.idle else "copying"
    topics = tuple(_topic_status(name, views, facts, going) for name, views in reported.items())
    remaining = sum(topic.remaining for topic in topics)
    return replace(status, topics=topics, remaining=remaining), reported


def as_waiting(status: FlowStatus, views: Sequence[PartitionView]) -> tuple[PartitionView, ...]:
    """Mark copied partitions as waiting, even those caught up, where no replicator copies."""
    idle = status.idle
    return tuple(
        replace(view, state="waiting", since_ms=0, reason=view.reason or idle)
        if idle and view.state in GOING_ON
        else view
        for view in views
    )


def _partitions(topic: TopicDescription, facts: FlowFacts) -> Iterator[PartitionView]:
    maps, source = facts.maps, facts.source
    for number in range(topic.partitions):
        place = TopicPartition(topic.name, number)
        at, end = maps.get(place).position, source.ends.get(place)
        status, damage = (maps.statuses or {}).get(place), maps.errors.get(place)
        begin = at.source_next if at else source.starts.get(place, end or 0)
        yield PartitionView(
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
    name: str, views: Sequence[PartitionView], facts: FlowFacts, state: TopicState
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
        "; ".join(f"{some(numbers)}: {reason}" for reason, numbers in reasons.items()),
        next((view.action for view in views if view.action), ""),
    )


def _reason(status: PartitionStatus | None) -> str:
    if status is None:
        return ""
    if status.state != "stopped" or status.lost_from is None:
        return status.what
    lost = both_ends(status.lost_from, status.lost_to or 0)
    return status.what if lost in status.what else f"{status.what} (offsets {lost})"
