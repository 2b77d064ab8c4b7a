"""One look at a flow for whoever shows it: what its target knows, and how far its source has gone.

Unlike :func:`.flow_status` it makes requests for a bounded number of groups, so it can be repeated
every few seconds: groups stand where their checkpoints say, see :mod:`.outlook`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from srm.domain.flow_state.anomalies import PartitionNotes
from srm.domain.flow_state.replication_records import AT_REST, PartitionStatus
from srm.domain.flow_state.replication_records import State as ReportedState
from srm.domain.groups.proof_records import FlowProof
from srm.domain.moves.records.plan import GroupPlan
from srm.domain.names.topics import TopicPartition
from srm.engine.flows.health import Health, flow_health
from srm.engine.flows.loss_forecast import read_known, standing_of, with_commits
from srm.engine.flows.source_look import (
    SourceLook,
    look_at_source,
    partitions_of,
    topics_by_copies,
    topics_of_source,
)
from srm.engine.flows.status import FlowStatus, Logs, copying_status, given_up, told_ends
from srm.engine.flows.supervision import standing_pause
from srm.engine.moves.planning.outlook import Outlook
from srm.engine.ports import FlowContext, FlowMaps, TopicDescription
from srm.errors import UnavailableError

PartitionState = ReportedState | Literal["unknown"]
"""That of a partition; unknown: no slot has ever reported it."""
GOING_ON: Final[frozenset[PartitionState]] = frozenset({"claiming", "copying"})
IN_TROUBLE: Final[frozenset[PartitionState]] = AT_REST


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition: where its copy is, in what state and why, what to do, what people must know.

    ``source_next``, ``target_next`` are None where nobody has told a position. ``lag`` are source
    offsets still to copy. ``since_ms`` is when the state began, 0: not known.
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


@dataclass(frozen=True)
class FlowView:
    """A flow at one moment: its status and health, its partitions and what is known of groups."""

    status: FlowStatus
    health: Health
    partitions: Mapping[str, tuple[PartitionView, ...]] = field(default_factory=dict)
    outlook: Outlook | None = None

    @property
    def heard_ms(self) -> int:
        """When the source last answered a slot, epoch milliseconds; 0: never, or unknown."""
        return self.status.heard_ms

    @property
    def proof(self) -> FlowProof | None:
        """What the last emission has proven, None where there was none."""
        return None if self.outlook is None else self.outlook.proof

    @property
    def groups(self) -> tuple[GroupPlan, ...]:
        """Where each group would go on, were the source given up now."""
        return self.outlook.plans if self.outlook is not None else ()


def observe(context: FlowContext) -> FlowView:
    """Look at a flow once; a source that does not answer leaves what the target knows.

    Raises:
        SrmError: the target does not answer.
    """
    now_ms = context.now_ms()
    pause = standing_pause(context)
    selected, error = _ask_topics(context)
    known = read_known(context, also=selected)
    source = _ask_source(context, selected, error, known)
    if not source.error:
        known = with_commits(context, known)
    standing = standing_of(context, known, None if source.error else source)
    maps = known.facts.maps
    ends = _ends(source, maps, source.topics)
    logs = Logs(maps, known.facts.target.topics, ends, source.starts, known.copy_starts)
    topics = [topic for _, topic in sorted(source.topics.items())]
    status = replace(copying_status(context, now_ms, topics, logs, source.error), standing=standing)
    if pause is not None:
        status = given_up(status, pause)
    return FlowView(
        status,
        flow_health(status),
        {
            name: tuple(partition_views(topic, maps, ends, source.starts, idle_reason(status)))
            for name, topic in source.topics.items()
        },
        known,
    )


def _ask_topics(context: FlowContext) -> tuple[dict[str, TopicDescription], str]:
    """Ask which topics are copied; those with copies, and why, where the source is silent."""
    try:
        return topics_of_source(context), ""
    except UnavailableError as error:
        return topics_by_copies(context), str(error)


def _ask_source(
    context: FlowContext, selected: Mapping[str, TopicDescription], error: str, known: Outlook
) -> SourceLook:
    """Ask how far the source is, or say why it does not answer."""
    if not error:
        try:
            return look_at_source(context, selected, known.facts.maps)
        except UnavailableError as silent:
            error = str(silent)
    return SourceLook(selected, error=error)


def _ends(
    source: SourceLook, maps: FlowMaps, topics: Mapping[str, TopicDescription]
) -> Mapping[TopicPartition, int]:
    """Return the ends of the source's logs: those it says, else those it said last."""
    if not source.error:
        return source.ends
    return told_ends(maps, partitions_of(topics, sorted(topics)))


def partition_views(
    topic: TopicDescription,
    maps: FlowMaps,
    ends: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    idle: str = "",
) -> Iterator[PartitionView]:
    """Say where each partition of a topic stands; pure.

    Where nobody copies (``idle`` says why), what was said last of one that went on is said no more:
    it waits, even if nothing is left to copy.
    """
    for number in range(topic.partitions):
        place = TopicPartition(topic.name, number)
        at, end = maps.get(place).position, ends.get(place)
        status, damage = (maps.statuses or {}).get(place), maps.errors.get(place)
        view = PartitionView(
            topic.name,
            number,
            _state(status, told=at is not None),
            at.source_next if at else None,
            end,
            at.target_next if at else None,
            max(0, (end or 0) - (at.source_next if at else starts.get(place, end or 0))),
            status.time_ms if status else 0,
            damage or (status.what if status else ""),
            maps.notes.get(place, ()),
            status.action if status and not damage else "",
        )
        if view.state in GOING_ON and idle:
            view = replace(view, state="waiting", since_ms=0, reason=view.reason or idle)
        yield view


def idle_reason(status: FlowStatus) -> str:
    """Say why nobody copies a flow, empty where somebody does."""
    if status.source_error:
        return f"{status.flow.source} does not answer"
    return "" if status.is_copied else "nobody copies it now"


def _state(status: PartitionStatus | None, *, told: bool) -> PartitionState:
    if status is not None:
        return status.state
    return "copying" if told else "unknown"
