"""Adoption of remote topics: a plan that proves what was copied, then map and positions.

The walk of both logs may take long, and comes before anything is written. While the map is handed
over, the flow is paused and its copies are sealed: their logs have to end where they were walked
to. The process may be killed anywhere; the next one walks again, and continues a map that was begun
only if it is the same.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from srm.domain.flow_state.pause import Pause
from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.flow_state.slot_records import next_incarnation
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_records import topic_id_bytes
from srm.domain.offset_map.offset_map import OffsetMap, Position
from srm.domain.recovery.adoption import SLOT, AdoptedCopy, AdoptionPlan, from_record
from srm.domain.text.amount import amount
from srm.engine.flows import mm2_offsets
from srm.engine.flows.supervision import pause_in_force
from srm.engine.ports import FlowContext
from srm.errors import ConflictError, NotFoundError, SrmError
from srm.replication.adoption.aligning import LogColumns, align, check_decided
from srm.replication.driver.discovery import Discovery
from srm.replication.log_reader import Connect, LogReader, of_each_log, some_at_once
from srm.replication.mapping.start_positions import Start
from srm.replication.mapping.start_reader import StartReader
from srm.replication.ports import Wire
from srm.replication.report.reporting import Reporter
from srm.replication.restore.topic_handover import Handover, Tell, check_read, hand_over
from srm.replication.resume.source_lookahead import Comparison
from srm.replication.takeover.sealing import Sealed, seal

_AT_ONCE: Final = 2
"""Partitions that are walked at once: each keeps some hundred megabytes at most."""


@dataclass(frozen=True)
class AdoptionContext:
    """A flow, and access to its logs and state.

    connect: connects to a cluster of it, as the replicator does.
    starts: what is known of its copies.
    reporter: makes one that writes to the flow's state.
    """

    flow: FlowContext
    connect: Connect
    starts: StartReader
    reporter: Callable[[], Reporter]
    by: str


def plan(
    context: AdoptionContext,
    topics: Collection[str] = (),
    offsets_topic: str = "",
    tell: Tell = lambda _line: None,
) -> AdoptionPlan:
    """Walk both logs of each remote topic that holds records; nothing is written.

    Without topics, all that the flow copies; with an empty ``offsets_topic`` MirrorMaker 2's
    default. ``tell`` receives the progress.

    NotFoundError: the flow does not copy one of the topics, or it has no remote topic.
    """
    flow, config = context.flow, context.flow.config
    sources, targets = flow.source.topics(), flow.target.topics()
    selected = config.names.select(sources)
    if unknown := set(topics) - set(selected):
        raise NotFoundError(f"{config.flow} does not copy {', '.join(sorted(unknown))}")
    assigned = []
    for name in sorted(topics or selected):
        remote = targets.get(config.policy.format_remote_topic(config.flow.source, name))
        if remote is not None:
            source = sources[name]
            ids = source.topic_id, remote.name, remote.topic_id
            numbers = range(min(source.partitions, remote.partitions))
            assigned += [AssignedPartition(name, number, *ids) for number in numbers]
        elif topics:
            raise NotFoundError(f"{name} has no remote topic on {config.flow.target}")
    offsets_topic = offsets_topic or mm2_offsets.offsets_topic(config.flow)
    stored = mm2_offsets.read(flow.target, offsets_topic, config.flow)
    starts = context.starts.load(assigned) if assigned else {}
    compacts = _compaction(flow, assigned)
    walks = _Walks(context, starts, stored, compacts, tell)
    found = asyncio.run(walks.all(assigned)) if assigned else []
    running = _running(flow, found, offsets_topic, stored)
    return AdoptionPlan(config.flow, tuple(found), running)


def _running(
    flow: FlowContext,
    walked: Sequence[AdoptedCopy],
    offsets_topic: str,
    stored: Mapping[TopicPartition, int],
) -> str:
    """Return a sign that MirrorMaker 2 still runs: workers, a new position, a copy that grew."""
    name, group = flow.config.flow, mm2_offsets.workers_group(flow.config.flow)
    [workers] = flow.target.groups([group]).values()
    if workers.members:
        return f"group {group} on {name.target} has members {', '.join(workers.members)}"
    if mm2_offsets.read(flow.target, offsets_topic, name) != stored:
        return f"{offsets_topic} on {name.target} was written during the walk"
    ends = flow.target.high_watermarks([_copy(one) for one in walked])
    grown = [str(_copy(one)) for one in walked if ends.get(_copy(one)) != one.target_end]
    return f"{', '.join(grown)} on {name.target} grew during the walk" if grown else ""


def _compaction(flow: FlowContext, assigned: Sequence[AssignedPartition]) -> dict[str, bool]:
    """Return which topics are compacted, of both sides by name."""
    sources, targets = {one.topic for one in assigned}, {one.target_topic for one in assigned}
    configs = [
        *flow.source.topic_configs(sources).items(),
        *flow.target.topic_configs(targets).items(),
    ]
    return {topic: "compact" in each.get("cleanup.policy", "") for topic, each in configs}


@dataclass
class _Walks:
    """Walks of partitions, some at once."""

    context: AdoptionContext
    starts: Mapping[AssignedPartition, Start | SrmError]
    stored: Mapping[TopicPartition, int]
    compacts: Mapping[str, bool]
    tell: Tell

    async def all(self, assigned: Sequence[AssignedPartition]) -> list[AdoptedCopy]:
        flow = self.context.flow.config.flow
        async with (
            self.context.connect(flow.source) as source,
            self.context.connect(flow.target) as target,
        ):

            async def one(partition: AssignedPartition) -> AdoptedCopy:
                return await self._one(partition, source, target)

            return await some_at_once(one, assigned, _AT_ONCE)

    async def _one(self, assigned: AssignedPartition, source: Wire, target: Wire) -> AdoptedCopy:
        original = TopicPartition(assigned.topic, assigned.partition)
        copy = TopicPartition(assigned.target_topic, assigned.partition)
        target_start, target_end = await target.log_range(copy)
        source_start, source_end = await source.log_range(original)
        stored, start = self.stored.get(original), self.starts.get(assigned)
        if isinstance(start, SrmError):
            return AdoptedCopy(assigned, target_end, source_end, stored=stored, failure=str(start))
        begin = (start.source_next, start.target_next) if start and start.has_position else (0, 0)
        walked = AdoptedCopy(assigned, target_end, source_end, stored=stored)
        if target_start == target_end:
            return walked if begin[1] or not target_end else _decide_emptied(walked, source_start)
        reader = LogReader(
            target, copy, topic_id_bytes(assigned.target_topic_id), read_committed=False
        )
        compacts = self.compacts.get(original.topic, False), self.compacts.get(copy.topic, False)
        config = self.context.flow.config
        first = await reader.batch_from(target_start)
        columns = LogColumns(
            Comparison(config.records.target_only),
            with_time=first is None or not first.has_log_append_time,
            with_keys=any(compacts),
        )
        try:
            aligned = await align(
                LogReader(
                    source, original, topic_id_bytes(assigned.topic_id), read_committed=False
                ),
                reader,
                begin,
                (source_end, target_end),
                columns,
                compacts,
                lambda at: self.tell(f"{copy}: walked to offset {at} of {target_end}"),
            )
        except SrmError as error:
            if error.retriable:
                raise
            return replace(walked, failure=str(error))
        if aligned.older and not (aligned.copied or aligned.foreign):
            reached = None if stored is None else max(stored, begin[0] - 1)
            expired = from_record(reached, (source_start, source_end), aligned.older)
            return replace(walked, aligned=expired or aligned, by_record=expired is not None)
        return replace(walked, aligned=aligned)


def _decide_emptied(copy: AdoptedCopy, source_start: int) -> AdoptedCopy:
    """Return a copy whose target has deleted all its records."""
    if found := from_record(copy.stored, (source_start, copy.source_end)):
        return replace(copy, aligned=found, by_record=True)
    return replace(
        copy, failure="the target deleted all its records, and MirrorMaker 2 has no position for it"
    )


@dataclass(frozen=True, slots=True)
class Adopted:
    """Result of an adoption: the topics, and the number of records in the maps handed over."""

    topics: tuple[str, ...]
    records: int


def adopt(
    context: AdoptionContext,
    planned: AdoptionPlan,
    *,
    accepted: bool = False,
    tell: Tell = lambda _line: None,
) -> Adopted:
    """Hand map and positions of the proven topics over to the flow; safe to repeat.

    ``accepted``: adopt topics with skipped or foreign records, too.

    ConflictError: MirrorMaker 2 still runs, a copy has grown since the plan, or the flow is paused.
    """
    flow = context.flow
    topics = planned.to_adopt(accepted=accepted)
    copies = [one for each in topics.values() for one in each]
    if flow.switch is None:
        raise RuntimeError("an adoption needs the switch of its flow")
    if copies and planned.running:
        raise ConflictError(f"MirrorMaker 2 still runs: {planned.running}; stop it first")
    Discovery(flow, flow.config).prepare()
    paused = pause_in_force(flow)
    is_killed_import = paused is not None and paused.by.endswith(f"({SLOT})")
    if not copies:
        if paused is not None and is_killed_import:
            flow.switch.resume(request=paused.request)
        return Adopted((), 0)
    if paused is not None and not is_killed_import:
        raise ConflictError(f"{planned.flow} is paused: {paused.reason}; end that first")
    reason = f"srm import adopts {amount(len(topics), 'topic')}"
    pause = Pause(uuid.uuid4().hex, f"{context.by} ({SLOT})", reason, flow.now_ms())
    flow.switch.pause(pause)
    try:
        records = _hand_over(context, copies, tell)
    finally:
        flow.switch.resume(request=pause.request)
    return Adopted(tuple(topics), records)


def _hand_over(context: AdoptionContext, copies: Sequence[AdoptedCopy], tell: Tell) -> int:
    flow = context.flow
    places = {_copy(one): one.assigned.target_topic_id for one in copies}
    tell(f"sealing {amount(len(places), 'partition')} on {flow.target.alias}")

    async def claim(log: LogReader) -> Sealed:
        found = await seal(log, flow.config.flow)
        await check_decided(log, found.marker)
        return found

    sealed = of_each_log(context.connect(flow.target.alias), places, claim)
    grown = [str(_copy(one)) for one in copies if sealed[_copy(one)].marker != one.target_end]
    if grown:
        raise ConflictError(
            f"{', '.join(grown)} on {flow.target.alias} has grown since its log was walked: stop "
            "what writes to it, and run this again"
        )
    starts = context.starts.load([one.assigned for one in copies])
    handovers, expected = [], dict[str, dict[TopicPartition, OffsetMap]]()
    for one in copies:
        start = starts.get(one.assigned)
        if isinstance(start, SrmError):
            raise start
        found = one.aligned
        if found is None:
            raise RuntimeError(f"{_copy(one)} was not walked")
        at = Position(found.source_next, sealed[_copy(one)].marker + 1, one.source_end)
        lost = found.skipped
        handovers.append(Handover(one.assigned, start, found.runs, at, sealed[_copy(one)], lost))
        place = TopicPartition(one.assigned.topic, one.assigned.partition)
        expected.setdefault(place.topic, {})[place] = OffsetMap(found.runs, at)
    reporter = context.reporter()
    before = context.starts.predecessor(SLOT)
    reporter.begin(next_incarnation(before.incarnations, flow.now_ms()), before.notes)
    tell(f"handing over the maps of {amount(len(handovers), 'partition')}")
    hand_over(handovers, reporter)
    for topic, maps in expected.items():
        check_read(flow, topic, maps)
    return sum(each.records for maps in expected.values() for each in maps.values())


def _copy(one: AdoptedCopy) -> TopicPartition:
    return TopicPartition(one.assigned.target_topic, one.assigned.partition)
