"""Adoption of remote topics: a plan that proves what was copied, then map and positions.

The walk of both logs comes before anything is written. While the map is handed over, the flow is
paused and its copies are sealed: their logs have to end where they were walked to. The process may
be killed anywhere; the next one continues a map that was begun only if it is the same.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from srm.domain.flow_state.liveness_thresholds import SILENT_S
from srm.domain.flow_state.replication_records import AssignedPartition, Pause
from srm.domain.flow_state.replication_state import decode_state, positions_by_copy
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.alignment import OPTIONAL, AlignedCopy, Alignment, Columns
from srm.domain.offset_map.offset_map import Position
from srm.domain.recovery.adoption import SLOT, AdoptedCopy, AdoptionPlan, from_record
from srm.domain.text.amount import amount
from srm.engine.cluster_ports import Cluster
from srm.engine.flows.supervision import driver_status, pause_in_force, slot_statuses, state_topic
from srm.engine.flows.target_topics import assignments
from srm.engine.groups import offsets_export
from srm.engine.ports import FlowContext
from srm.errors import ConflictError, NotFoundError, SrmError, UnavailableError
from srm.replication.batches.batch import AbortedTransactions, batches, content_hash, verify
from srm.replication.batches.records import LoopShare, records_of
from srm.replication.claim import Sealed, seal
from srm.replication.driver.discovery import Discovery
from srm.replication.log_reader import (
    ONE_BATCH,
    Connect,
    LogReader,
    OutOfRangeError,
    fetches,
    of_each_log,
    some_at_once,
)
from srm.replication.mapping.starts import Start, StartReader
from srm.replication.ports import DecodedRecord, Wire
from srm.replication.report import Reporter
from srm.replication.restore.topic_handover import Handover, Show, check_read, hand_over
from srm.replication.resume.source_lookahead import Comparison
from srm.replication.takeover import WalkedLogs

_RECORDS: Final = 1 << 14
_STOP_IT: Final = "stop it; if the flow is off there, set its emit.heartbeats.enabled = false, too"
_TIMES: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class LogColumns:
    """Reads a log as columns; with equal settings on both sides."""

    comparison: Comparison
    with_time: bool
    with_keys: bool

    async def read(self, log: LogReader, start: int, end: int) -> AsyncGenerator[Columns]:
        """Yield the records up to the end, aborted ones as optional unless read as committed."""
        records, optional = list[DecodedRecord](), list[int]()
        turns = LoopShare()
        async with aclosing(_batches(log, start, end, turns)) as pieces:
            async for piece, kind in pieces:
                records += piece
                optional += [kind] * len(piece)
                if len(records) >= _RECORDS:
                    yield self._columns(records, optional)
                    records, optional = [], []
        if records:
            yield self._columns(records, optional)

    def _columns(self, records: list[DecodedRecord], optional: list[int]) -> Columns:
        content = self.comparison.content
        contents = np.array([content(record) for record in records], np.int64)
        if self.with_time:
            times = np.array([record.timestamp for record in records], np.int64)
            contents ^= (times.astype(np.uint64) * _TIMES).astype(np.int64)
        if self.with_keys:
            hashes = (0 if r.key is None else content_hash(r.key) for r in records)
            keys = np.fromiter(hashes, np.int64, len(records))
        else:
            keys = np.zeros(len(records), np.int64)
        kinds = [
            (r.key is not None) | (r.value is None) << 1 | kind
            for r, kind in zip(records, optional, strict=True)
        ]
        offsets = np.array([record.offset for record in records], np.int64)
        return Columns(offsets, contents, keys, np.array(kinds, np.uint8))


async def _batches(
    log: LogReader, start: int, end: int, turns: LoopShare
) -> AsyncGenerator[tuple[list[DecodedRecord], int]]:
    """Yield decoded records with a bit of their kind: committed ones, then, if read, the others."""
    at = start
    for committed in (True,) if log.read_committed else (True, False):
        reader = LogReader(log.wire, log.partition, log.topic_id, read_committed=committed)
        async for wanted, fetched in fetches(reader, at):
            aborted = AbortedTransactions(fetched.aborted if committed else ())
            for batch in batches(fetched.records):
                dropped = aborted.drops(batch)
                at = max(at, batch.last_offset + 1)
                if batch.is_control or not batch.record_count or batch.last_offset < wanted:
                    continue
                if dropped and log.read_committed:
                    continue
                verify(batch)
                async for piece in records_of(batch, turns, wanted):
                    yield [r for r in piece if r.offset < end], OPTIONAL * dropped
            if at >= end:
                return
    log_start, log_end = await log.wire.log_range(log.partition)
    if not log_start <= at <= end <= log_end:  # else compaction has removed the last records
        raise _change_of(log, end)


def _change_of(log: LogReader, end: int) -> UnavailableError:
    return UnavailableError(
        f"{log.partition} on {log.wire.alias}: the log was deleted up to its end {end}, or lost it",
        "run this again",
    )


async def check_decided(log: LogReader, end: int) -> None:
    """Refuse a log with a transaction that is open before an offset: it may still be aborted."""
    committed = replace(log, read_committed=True)
    try:
        fetched = await committed.fetch(end, max_bytes=ONE_BATCH, wait_ms=0)
    except OutOfRangeError as error:
        raise _change_of(log, end) from error
    if fetched.last_stable_offset < end:
        raise UnavailableError(
            f"{log.partition} on {log.wire.alias}: a transaction is open from offset "
            f"{fetched.last_stable_offset} on",
            "stop its producer, wait for its timeout or abort it (kafka-transactions.sh), and run "
            "this again",
        )


async def align(
    source: LogReader,
    target: LogReader,
    begin: tuple[int, int],
    ends: tuple[int, int],
    columns: LogColumns,
    compacts: tuple[bool, bool],
    show: Callable[[int], None],
) -> AlignedCopy:
    """Align what the target holds from an offset on with the source.

    Aborted records may have been copied, but an aborted copy is none. ``begin``: a known position.
    """
    await check_decided(target, ends[1])
    target = replace(target, read_committed=True)
    log_start, _ = await source.wire.log_range(source.partition)
    target_start, _ = await target.wire.log_range(target.partition)
    alignment = Alignment(
        begin[0],
        trimmed=log_start > 0,
        target_trimmed=target_start > begin[1],
        source_compacts=compacts[0],
        target_compacts=compacts[1],
    )
    target_end = ends[1]
    async with (
        aclosing(columns.read(source, log_start, ends[0])) as originals,
        aclosing(columns.read(target, begin[1], target_end)) as copies,
    ):
        part, left = await anext(copies, None), None
        while part is not None:
            following = await anext(copies, None)
            left = Columns.concatenate([left, part]) if left is not None else part
            while True:
                left = left.after(alignment.match(left, is_last=following is None))
                if not (len(left) and alignment.wants_source):
                    break
                more = await anext(originals, None)
                if more is None:
                    alignment.ended = True
                else:
                    alignment.feed(more)
            show(int(part.offsets[-1]) + 1)
            part = following
    return alignment.result()


_AT_ONCE: Final = 2
"""Partitions that are walked at once: each keeps some hundred megabytes at most."""


@dataclass(frozen=True)
class AdoptionContext:
    """A flow, connections to its clusters as the replicator makes them, and its state."""

    flow: FlowContext
    connect: Connect
    starts: StartReader
    reporter: Callable[[], Reporter]
    by: str


def plan(
    context: AdoptionContext,
    topics: Collection[str] = (),
    show: Show = lambda _line: None,
) -> AdoptionPlan:
    """Walk both logs of each remote topic that holds records; nothing is written.

    Without topics, all that the flow copies. NotFoundError: the flow does not copy one of the
    topics, or it has no remote topic. ConflictError: srm copies them itself, now.
    """
    flow, config = context.flow, context.flow.config
    assigned = _copies_of(flow, topics)
    topic = offsets_export.offsets_topic(config)
    stored = offsets_export.read_mm2_positions(flow.target, topic, config.flow)
    starts = context.starts.load(assigned) if assigned else {}
    compacted = (
        _compaction(flow.source, (one.topic for one in assigned)),
        _compaction(flow.target, (one.target_topic for one in assigned)),
    )
    walks = _Walks(context, starts, stored, compacted, show)
    found = asyncio.run(walks.all(assigned)) if assigned else []
    return AdoptionPlan(config.flow, tuple(found), _running(flow, found, topic, stored))


def _copies_of(flow: FlowContext, topics: Collection[str]) -> list[AssignedPartition]:
    names, sources, targets = flow.config.names, flow.source.topics(), flow.target.topics()
    selected = names.select(sources)
    if unknown := set(topics) - set(selected):
        raise NotFoundError(f"{names.flow} does not copy {', '.join(sorted(unknown))}")
    found = []
    for name in sorted(topics or selected):
        remote = targets.get(names.remote(name))
        if remote is not None:
            found += assignments(sources[name], remote)
        elif topics:
            raise NotFoundError(f"{name} has no remote topic on {names.flow.target}")
    return found


def _running(
    flow: FlowContext, done: Sequence[AdoptedCopy], topic: str, stored: Mapping[TopicPartition, int]
) -> str:
    """Return a sign that MirrorMaker 2 still runs: workers, a new position, a copy that grew."""
    name = flow.config.flow
    if members := _members_of_workers(flow):
        return members
    if offsets_export.read_mm2_positions(flow.target, topic, name) != stored:
        return f"{topic} on {name.target} was written during the walk"
    ends = flow.target.high_watermarks([_copy(one) for one in done])
    grown = [str(_copy(one)) for one in done if ends.get(_copy(one)) != one.target_end]
    records = state_topic(flow).read()
    reported = positions_by_copy(decode_state(records).reports)
    others = (one for one in done if one.state not in {"own", "empty"})
    if grown or any(one.assigned.copy_id in reported for one in others):
        check_stopped(records, name, flow.now_ms())  # else they may be srm's newest
    return f"{', '.join(grown)} on {name.target} grew during the walk" if grown else ""


def _members_of_workers(flow: FlowContext) -> str:
    group = offsets_export.workers_group(flow.config)
    [workers] = flow.target.groups([group]).values()
    if not workers.members:
        return ""
    return f"group {group} on {flow.target.alias} has members {', '.join(workers.members)}"


def _compaction(cluster: Cluster, topics: Iterable[str]) -> frozenset[str]:
    found = cluster.topic_settings({*topics})
    return frozenset(name for name in found if "compact" in found[name]["cleanup.policy"].value)


@dataclass
class _Walks:
    context: AdoptionContext
    starts: Mapping[AssignedPartition, Start | SrmError]
    stored: Mapping[TopicPartition, int]
    compacted: tuple[frozenset[str], frozenset[str]]
    show: Show

    async def all(self, assigned: Sequence[AssignedPartition]) -> list[AdoptedCopy]:
        flow = self.context.flow.config.flow
        async with (
            self.context.connect(flow.source) as source,
            self.context.connect(flow.target) as target,
        ):
            return await some_at_once(partial(self._one, source, target), assigned, _AT_ONCE)

    async def _one(self, source: Wire, target: Wire, assigned: AssignedPartition) -> AdoptedCopy:
        reader = LogReader.of_target(target, assigned)
        originals = LogReader.of_source(source, assigned)
        original, copy = originals.partition, reader.partition
        target_start, target_end = await target.log_range(copy)
        source_start, source_end = await source.log_range(original)
        stored, start = self.stored.get(original), self.starts.get(assigned)
        walked = AdoptedCopy(assigned, target_end, source_end, stored=stored)
        if isinstance(start, SrmError):
            return replace(walked, failure=str(start))
        begin = (start.source_next, start.target_next) if start and start.has_position else (0, 0)
        if target_start == target_end:
            return walked if begin[1] or not target_end else _decide_emptied(walked, source_start)
        compacts = original.topic in self.compacted[0], copy.topic in self.compacted[1]
        first = await reader.batch_from(target_start)
        before = await originals.batch_from(source_start)
        is_set_by_target = first is not None and first.has_log_append_time
        is_missing = before is not None and before.max_timestamp < 0  # a producer sets its own then
        columns = LogColumns(
            Comparison(self.context.flow.config.records.target_only),
            with_time=not (is_set_by_target or is_missing),
            with_keys=any(compacts),
        )
        try:
            aligned = await align(
                originals,
                reader,
                begin,
                (source_end, target_end),
                columns,
                compacts,
                lambda at: self.show(f"{copy}: walked to offset {at} of {target_end}"),
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
    show: Show = lambda _line: None,
) -> Adopted:
    """Hand map and positions of the proven topics over to the flow; safe to repeat.

    ``accepted``: adopt topics with skipped or foreign records, too. ConflictError: MirrorMaker 2
    still runs, a copy has grown since the plan, or the flow is paused.
    """
    flow = context.flow
    topics = planned.to_adopt(accepted=accepted)
    copies = [one for each in topics.values() for one in each]
    if copies and planned.running:
        raise ConflictError(f"MirrorMaker 2 still runs: {planned.running}", _STOP_IT)
    Discovery(flow).prepare()
    paused = pause_in_force(flow)
    is_killed_import = paused is not None and paused.by.endswith(f"({SLOT})")
    if not copies:
        if paused is not None and is_killed_import:
            flow.own_switch.resume(request=paused.request)
        return Adopted((), 0)
    if paused is not None and not is_killed_import:
        raise ConflictError(f"{planned.flow} is paused: {paused.reason}; end that first")
    reason = f"srm import adopts {amount(len(topics), 'topic')}"
    pause = Pause(uuid.uuid4().hex, f"{context.by} ({SLOT})", reason, flow.now_ms())
    flow.own_switch.pause(pause)
    try:
        records = _hand_over(context, copies, show)
    finally:
        flow.own_switch.resume(request=pause.request)
    return Adopted(tuple(topics), records)


def _hand_over(context: AdoptionContext, copies: Sequence[AdoptedCopy], show: Show) -> int:
    flow = context.flow
    places = {_copy(one): one.assigned.target_topic_id for one in copies}
    show(f"sealing {amount(len(places), 'partition')} on {flow.target.alias}")

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
    handovers = []
    for one in copies:
        found = one.aligned
        if found is None:
            raise RuntimeError(f"{_copy(one)} was not walked")
        own = sealed[_copy(one)]
        at = Position(found.source_next, own.marker + 1, one.source_end)
        handovers.append(Handover(one.assigned, found.runs, at, own, found.skipped))
    show(f"handing over the maps of {amount(len(handovers), 'partition')}")
    hand_over(handovers, context.starts, context.reporter(), flow.now_ms())
    check_read(flow, handovers)
    return sum(each.map.records for each in handovers)


def _copy(one: AdoptedCopy) -> TopicPartition:
    return TopicPartition(one.assigned.target_topic, one.assigned.partition)


@dataclass(frozen=True, slots=True)
class BackPosition:
    """The next source offset of one partition."""

    topic: str
    partition: int
    source_next: int


@dataclass(frozen=True, slots=True)
class HandedBack:
    """Positions for MirrorMaker 2, of all partitions that srm has copied."""

    flow: Flow
    positions: tuple[BackPosition, ...]


def plan_handing_back(
    context: FlowContext,
    logs: WalkedLogs,
    topics: Collection[str] = (),
    show: Callable[[int], None] = lambda _done: None,
) -> HandedBack:
    """Prove where the copies of a stopped flow end; without topics, those of all that it copies."""
    config, records = context.config, state_topic(context).read()
    check_stopped(records, config.flow, context.now_ms())
    reported = positions_by_copy(decode_state(records).reports)
    copied = [one for one in _copies_of(context, topics) if one.copy_id in reported]
    if not copied:
        raise NotFoundError(f"{config.flow} has copied none of these topics")
    positions = []
    for one, found in logs.copy_ends(copied, show).items():
        if isinstance(found, SrmError):
            raise found
        positions.append(BackPosition(one.topic, one.partition, found.copied_to))
    return HandedBack(config.flow, tuple(positions))


def check_stopped(records: Mapping[bytes, bytes], flow: Flow, now_ms: int) -> None:
    """Refuse a flow that is still copied: slots outlive a driver that was killed."""
    driver = driver_status(records, flow, now_ms)
    if driver is not None and driver.alive:
        raise ConflictError(
            f"srm replicates {flow} already, on {driver.host}",
            f"srm replicator stop --flow '{flow}'",
        )
    slots = slot_statuses(decode_state(records).reports, now_ms)
    alive = [slot.slot for slot in slots if slot.alive]
    if alive and not (driver is not None and driver.ended):
        raise ConflictError(
            f"slots {', '.join(alive)} of {flow} have reported lately, without a driver",
            f"end the executors, and run this again after {SILENT_S:.0f} s",
        )


def hand_back(context: FlowContext, found: HandedBack) -> None:
    """Write the positions where MirrorMaker 2's workers read them."""
    check_stopped(state_topic(context).read(), found.flow, context.now_ms())
    if members := _members_of_workers(context):
        raise ConflictError(f"MirrorMaker 2 runs: {members}", _STOP_IT)
    topic = offsets_export.offsets_topic(context.config)
    wanted = {TopicPartition(one.topic, one.partition): one.source_next for one in found.positions}
    offsets_export.write_mm2_positions(context.target, topic, found.flow, wanted)
