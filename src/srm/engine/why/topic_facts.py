"""Facts that explain why a flow copies a topic, or does not, from one look at both clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from srm.config.model import FlowConfig
from srm.domain.flow_state.pause import Pause, read_pause
from srm.domain.flow_state.replication_state import decode_state
from srm.domain.names.flow_topics import FlowTopics, Refusal
from srm.engine.cluster_ports import TopicDescription, TopicSpec
from srm.engine.control import control_lists
from srm.engine.control.control_lists import ControlLists
from srm.engine.flows.source_look import SourceLook, bounds, partitions_with_leader
from srm.engine.flows.supervision import state_topic
from srm.engine.ports import FlowContext
from srm.engine.status.status import FlowFacts, FlowStatus, PartitionView, as_waiting, status_of
from srm.engine.why.rates import recent_rate
from srm.errors import SrmError, UnavailableError


@dataclass(frozen=True, slots=True)
class Rights:
    """Rights of srm: ``reads`` and ``asks`` on the original, ``writes`` on the copy.

    They are those of consumer, admin client and producer; None without an answer or the topic.
    """

    reads: frozenset[str] | None = None
    asks: frozenset[str] | None = None
    writes: frozenset[str] | None = None


@dataclass(frozen=True)
class Copying:
    """Copying of the topic: status, partitions with their slots, and rights.

    ``status`` is the flow's, with this topic alone. ``slots`` are the slots by assigned partition.
    ``creation`` is the reason why the missing copy cannot be created. ``rate`` is the highest
    recent rate in records per second, None without metrics.
    """

    status: FlowStatus
    partitions: tuple[PartitionView, ...]
    slots: Mapping[int, str]
    rights: Rights = Rights()
    creation: SrmError | None = None
    rate: float | None = None

    @property
    def silent(self) -> dict[str, int]:
        """Milliseconds since the last report, of the slots that are not alive."""
        return {slot.slot: slot.age_ms for slot in self.status.slots if not slot.alive}


@dataclass(frozen=True)
class TopicFacts:
    """Facts about one topic.

    ``topic`` is its name on the source, ``asked`` the name of its copy if that was requested.
    ``source_error`` is the reason why the source is unavailable. ``hidden``: srm has no right to
    see whether the topic exists. ``copying`` is None for a topic not selected or not found.
    """

    config: FlowConfig
    lists: ControlLists
    topic: str
    asked: str
    on_source: Mapping[str, TopicDescription]
    on_target: Mapping[str, TopicDescription]
    pause: Pause | None = None
    source_error: str = ""
    hidden: bool = False
    copying: Copying | None = None

    @property
    def remote(self) -> str:
        """Name of the copy."""
        return self.names.remote(self.topic)

    @property
    def names(self) -> FlowTopics:
        """The names of the flow's topics."""
        return self.config.names

    @property
    def refusal(self) -> Refusal | None:
        """The reason why the flow does not copy a topic of this name, or None."""
        return self.names.refusal(self.topic)


def read_topic(context: FlowContext, name: str) -> TopicFacts:
    """Read the facts about one topic; a source that does not answer is skipped.

    Args:
        context: the flow, the lists of srm-control merged into its settings.
        name: its name on the source, or that of its copy.

    Raises:
        SrmError: the target does not answer.
    """
    config = context.config
    commands = state_topic(context).read_commands()
    on_target = context.target.topics()
    on_source: Mapping[str, TopicDescription] = {}
    source_error = ""
    try:
        on_source = context.source.topics()
    except UnavailableError as error:
        source_error = str(error)
    topic = original_name(name, config, on_source)
    facts = TopicFacts(
        config,
        control_lists.load(context.target, config.flow),
        topic,
        name if name != topic else "",
        on_source,
        on_target,
        read_pause(commands),
        source_error,
        hidden=not source_error and topic not in on_source and _is_hidden(context, topic),
    )
    known = on_source.get(topic) or _as_copied(facts)
    if facts.refusal is not None or known is None:
        return facts
    return replace(facts, copying=_copying(context, facts, known, commands))


def original_name(name: str, config: FlowConfig, on_source: Mapping[str, TopicDescription]) -> str:
    """Return the name on the source, for a topic or the name of its copy."""
    return name if name in on_source else config.names.original(name) or name


def _is_hidden(context: FlowContext, topic: str) -> bool:
    return topic in context.source.topic_rights([topic])


def _as_copied(facts: TopicFacts) -> TopicDescription | None:
    """Describe a topic by its copy, while the source does not answer."""
    copy = facts.on_target.get(facts.remote) if facts.source_error else None
    return None if copy is None else TopicDescription(facts.topic, "", copy.partitions)


def _copying(
    context: FlowContext,
    facts: TopicFacts,
    known: TopicDescription,
    commands: Mapping[bytes, bytes],
) -> Copying:
    topic, now_ms = facts.topic, context.now_ms()
    maps = context.maps.load([topic], {})
    topics = {topic: known}
    if facts.source_error:
        source = SourceLook.of_reports(topics, maps, facts.source_error)
    else:
        source = SourceLook(topics, *bounds(context, partitions_with_leader(known), maps))
    copy = facts.on_target.get(facts.remote)
    copies = [] if copy is None else partitions_with_leader(copy)
    starts = context.target.log_starts(copies) if copies else {}
    status, reported = status_of(
        FlowFacts(context.config, now_ms, commands, maps, source, facts.on_target, starts)
    )
    views = reported[topic]
    return Copying(
        status,
        # An unavailable source is reported once, not for each partition.
        views if facts.source_error else as_waiting(status, views),
        _slots_by_partition(commands, known),
        _rights(context, facts),
        None if copy is not None else context.target.creation_problem(_spec(facts, known)),
        recent_rate(context, [topic], now_ms) if status.remaining else None,
    )


def _spec(facts: TopicFacts, known: TopicDescription) -> TopicSpec:
    return TopicSpec(facts.remote, known.partitions, facts.config.replication_factor, {})


def _slots_by_partition(commands: Mapping[bytes, bytes], known: TopicDescription) -> dict[int, str]:
    """Return the slots by assigned partition of a topic, for this topic id."""
    assignments = decode_state(commands).assignments
    return {
        partition.partition: assignment.slot
        for assignment in assignments
        for partition in assignment.partitions
        if partition.topic == known.name and known.topic_id in {"", partition.topic_id}
    }


def _rights(context: FlowContext, facts: TopicFacts) -> Rights:
    topic, remote = facts.topic, facts.remote
    if facts.source_error:
        reads = asks = None
    else:
        reads = context.source.topic_rights([topic], "consumer").get(topic)
        asks = context.source.topic_rights([topic]).get(topic)
    writes = context.target.topic_rights([remote], "producer").get(remote)
    return Rights(reads, asks, writes)
